#include "mezzo/model_values.h"

#include <torch/serialize/archive.h>

#include <utility>
#include <vector>

#include "amp/model_state.h"
#include "amp/model_values.h"
#include "amp/module_types.h"
#include "core/raise.h"

namespace mezzo {
namespace amp::detail {
namespace {

using Values = torch::OrderedDict<std::string, at::Tensor>;

constexpr std::string_view kLoad = "load";

/// A tensor of the network, and what it is to become.
struct Assignment {
  at::Tensor target;
  at::Tensor value;
};

void check_shape(const std::string& name, const at::Tensor& target, const at::Tensor& value) {
  if (!value.defined()) raise(kLoad, "'", name, "' is undefined");
  if (value.sizes() != target.sizes()) {
    raise(kLoad, "'", name, "' has shape ", value.sizes(), ", but the network's has ",
          target.sizes());
  }
  // A network that was cast by LibTorch's own `to` has floating counters: their values are taken.
  if (value.is_complex() != target.is_complex()) {
    raise(kLoad, "'", name, "' is of type ", value.scalar_type(), ", but the network's is ",
          target.scalar_type());
  }
}

void assign(Session& session, const std::vector<Assignment>& assignments) {
  const at::NoGradGuard no_grad;
  for (const Assignment& one : assignments) {
    at::Tensor target = one.target;
    Weight* weight = session.weights().find(target);
    const bool was_split = weight != nullptr && weight->is_split();
    if (was_split) give_memory(*weight);
    if (weight != nullptr && weight->master.defined()) weight->master.copy_(one.value);
    target.copy_(weight != nullptr && weight->master.defined() ? weight->master : one.value);
    if (weight != nullptr) WeightTable::agree(*weight);
    if (was_split) split_master(*weight);
  }
  for (const auto& model : session.models()) model->note_load();
}

void write(torch::serialize::OutputArchive& archive, Session& session,
           const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    archive.write(item.key(), float_value(session, item.value()));
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    archive.write(item.key(), float_value(session, item.value()), /*is_buffer=*/true);
  }
  for (const auto& child : module.named_children()) {
    if (!child.value()->is_serializable()) continue;
    torch::serialize::OutputArchive nested(archive.compilation_unit());
    write(nested, session, *child.value());
    archive.write(child.key(), nested);
  }
}

void read(torch::serialize::InputArchive& archive, const torch::nn::Module& module,
          const std::string& prefix, std::vector<Assignment>& assignments) {
  const auto take = [&](const std::string& key, const at::Tensor& target, bool is_buffer) {
    at::Tensor value;
    if (!archive.try_read(key, value, is_buffer))
      raise(kLoad, "the file has no '", prefix, key, "'");
    check_shape(prefix + key, target, value);
    assignments.push_back({target, value});
  };
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    take(item.key(), item.value(), false);
  for (const auto& item : module.named_buffers(/*recurse=*/false))
    take(item.key(), item.value(), true);
  for (const auto& child : module.named_children()) {
    if (!child.value()->is_serializable()) continue;
    torch::serialize::InputArchive nested;
    if (!archive.try_read(child.key(), nested))
      raise(kLoad, "the file has no '", prefix, child.key(), "'");
    read(nested, *child.value(), prefix + child.key() + ".", assignments);
  }
}

}  // namespace

at::Tensor float_value(Session& session, const at::Tensor& tensor) {
  const Weight* weight = session.weights().find(tensor);
  if (weight != nullptr && weight->is_split()) return master_value(*weight);
  const at::Tensor source = weight != nullptr && weight->master.defined() ? weight->master : tensor;
  const at::Tensor value = source.detach();
  return is_low(value) ? value.to(at::kFloat) : value.clone();
}

namespace {

std::vector<Assignment> assignments_of(const torch::nn::Module& module, const Values& values,
                                       bool strict) {
  std::vector<Assignment> assignments;
  Values targets = module.named_parameters();
  targets.update(module.named_buffers());
  std::string missing;
  for (const auto& item : targets) {
    const at::Tensor* value = values.find(item.key());
    if (value == nullptr) {
      missing += " '" + item.key() + "'";
      continue;
    }
    check_shape(item.key(), item.value(), *value);
    assignments.push_back({item.value(), *value});
  }
  std::string unexpected;
  for (const auto& item : values) {
    if (!targets.contains(item.key())) unexpected += " '" + item.key() + "'";
  }
  if (strict && !missing.empty()) raise(kLoad, "these values of the network are missing:", missing);
  if (strict && !unexpected.empty()) raise(kLoad, "the network has no place for:", unexpected);
  return assignments;
}

}  // namespace

void check_values(const torch::nn::Module& module, const Values& values, bool strict) {
  assignments_of(module, values, strict);
}

void assign_values(Session& session, const torch::nn::Module& module, const Values& values,
                   bool strict) {
  session.weights().absorb();
  assign(session, assignments_of(module, values, strict));
}

void load_values(torch::serialize::InputArchive& archive, const torch::nn::Module& module) {
  std::vector<Assignment> assignments;
  read(archive, module, "", assignments);
  const at::NoGradGuard no_grad;
  for (const Assignment& one : assignments) at::Tensor(one.target).copy_(one.value);
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                            const ModelHandle& model) {
  model.state()->session().weights().absorb_all_values();
  write(archive, model.state()->session(), model.state()->module());
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                           const ModelHandle& model) {
  model.state()->session().weights().absorb();
  std::vector<Assignment> assignments;
  read(archive, model.state()->module(), "", assignments);
  assign(model.state()->session(), assignments);
  return archive;
}

}  // namespace amp::detail

namespace amp {

torch::OrderedDict<std::string, at::Tensor> model_state_dict(const detail::ModelHandle& model) {
  detail::Session& session = model.state()->session();
  session.weights().absorb_all_values();
  torch::OrderedDict<std::string, at::Tensor> values;
  for (const auto& item : model.named_parameters()) {
    values.insert(item.key(), detail::float_value(session, item.value()));
  }
  for (const auto& item : model.named_buffers()) {
    values.insert(item.key(), detail::float_value(session, item.value()));
  }
  return values;
}

void load_network(torch::nn::Module& net, const std::string& path) {
  std::string what;
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(path);
    detail::load_values(archive, net);
    return;
  } catch (const c10::Error& error) {
    what = error.what_without_backtrace();
  } catch (const std::exception& error) {
    what = error.what();
  }
  raise("load_network", "cannot load '", path,
        "', expected a file of such a network that torch::save wrote: ",
        what.substr(0, what.find('\n')));
}

void load_model_state_dict(const detail::ModelHandle& model,
                           const torch::OrderedDict<std::string, at::Tensor>& values, bool strict) {
  detail::assign_values(model.state()->session(), model.state()->module(), values, strict);
}

}  // namespace amp
}  // namespace mezzo
