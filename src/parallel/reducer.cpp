#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <sstream>
#include <utility>

#include "mezzo/process_group.h"
#include "parallel/averaging.h"
#include "parallel/flat.h"
#include "parallel/group.h"
#include "parallel/same_lines.h"

namespace mezzo::parallel {
namespace {

at::TensorOptions plain_options(const at::Tensor& tensor) {
  return tensor.options().requires_grad(false);
}

bool is_parameter(const at::Tensor& tensor) {
  return tensor.requires_grad() && tensor.is_leaf();
}

void check_dense(const std::vector<at::Tensor>& tensors, const char* where) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) raise<ConfigError>(where, "tensor ", i, " is undefined");
    if (tensors[i].layout() != at::kStrided) {
      raise<UnsupportedError>(where, "tensor ", i, " is sparse; expected a dense one");
    }
  }
}

void check_list(const std::vector<at::Tensor>& tensors, const char* where) {
  check_dense(tensors, where);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!at::isFloatingType(tensors[i].scalar_type())) {
      raise<ConfigError>(where, "tensor ", i, " is of type ",
                         c10::toString(tensors[i].scalar_type()), "; expected a floating type");
    }
  }
}

}  // namespace

void all_reduce_average(const std::vector<at::Tensor>& tensors,
                        const std::optional<ProcessGroup>& group) {
  constexpr const char* kWhere = "all_reduce_average";
  check_list(tensors, kWhere);
  const ProcessGroup members = group_or_world(group, kWhere);
  Lane& lane = members.internals().calls();
  for (const auto& chosen : by_type(tensors)) {
    const at::Tensor flat = flatten_chosen(tensors, chosen);
    start_average(lane, flat, average_scale(lane.size()))->wait();
    unflatten_chosen(flat, tensors, chosen);
  }
}

void broadcast_all(const std::vector<at::Tensor>& tensors, int root,
                   const std::optional<ProcessGroup>& group) {
  constexpr const char* kWhere = "broadcast_all";
  check_dense(tensors, kWhere);
  const ProcessGroup members = group_or_world(group, kWhere);
  for (const auto& chosen : by_type(tensors)) {
    const at::Tensor flat = flatten_chosen(tensors, chosen);
    members.broadcast(flat, root);
    unflatten_chosen(flat, tensors, chosen);
  }
}

Reducer::Reducer(std::vector<at::Tensor> tensors, std::optional<ProcessGroup> group)
    : tensors_(std::move(tensors)), group_(std::move(group)) {
  constexpr const char* kWhere = "Reducer";
  check_list(tensors_, kWhere);
  const ProcessGroup members = group_or_world(group_, kWhere);
  std::vector<std::string> lines;
  std::vector<at::Tensor> parameters;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    std::ostringstream line;
    is_parameter_.push_back(is_parameter(tensors_[i]));
    line << (is_parameter_[i] ? "parameter " : "tensor ") << i << ' '
         << c10::toString(tensors_[i].scalar_type()) << ' ' << tensors_[i].sizes();
    lines.push_back(line.str());
    if (is_parameter_[i]) parameters.push_back(tensors_[i]);
  }
  check_same_lines(members.internals().calls(), lines, kWhere);
  broadcast_all(parameters, 0, group_);
}

void Reducer::reduce() {
  const ProcessGroup members = group_or_world(group_, "Reducer");
  Lane& lane = members.internals().calls();
  for (const auto& chosen : by_type(tensors_)) {
    // A gradient may be missing on some ranks, or of another type than its parameter: all reduce
    // the same layout, and one element per tensor behind it says whether any rank had it.
    std::vector<at::Tensor> values;
    std::vector<std::size_t> all;
    std::vector<std::size_t> used_here;
    for (std::size_t i : chosen) {
      const at::Tensor& tensor = tensors_[i];
      const at::Tensor value = is_parameter_[i] ? tensor.grad() : tensor;
      if (value.defined() && value.layout() != at::kStrided) {
        raise<UnsupportedError>("Reducer", "gradient ", i, " is sparse; expected a dense one");
      }
      if (value.defined()) used_here.push_back(all.size());
      values.push_back(value.defined() ? value : at::zeros(tensor.sizes(), plain_options(tensor)));
      all.push_back(all.size());
    }
    const auto count = static_cast<std::int64_t>(chosen.size());
    const at::Tensor flat =
        flatten_chosen(values, all, plain_options(tensors_[chosen.front()]), count);
    const at::Tensor used = flat.narrow(0, flat.numel() - count, count);
    const bool all_used = used_here.size() == chosen.size();
    if (all_used) used.fill_(1);
    if (!all_used) {
      for (std::size_t i : used_here) used[static_cast<std::int64_t>(i)].fill_(1);
    }
    start_average(lane, flat, average_scale(lane.size()))->wait();
    unflatten_chosen(flat, values, all);
    if (all_used) continue;  // reading costs a GPU a stop
    const at::Tensor used_somewhere = used.to(at::kCPU, at::kDouble);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const at::Tensor& tensor = tensors_[chosen[i]];
      const bool anywhere = used_somewhere.const_data_ptr<double>()[i] > 0;
      if (is_parameter_[chosen[i]] && !tensor.grad().defined() && anywhere) {
        tensor.mutable_grad() = values[i];
      }
    }
  }
}

}  // namespace mezzo::parallel
