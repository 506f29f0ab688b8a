#include "insight/close_up.h"

#include <algorithm>
#include <utility>

namespace mezzo::insight {

bool gives_raw_memory(std::string_view name) {
  return name.starts_with("empty") || name.starts_with("new_empty") || name.starts_with("resize");
}

TensorRange CloseUp::describe(const at::Tensor& tensor) const {
  TensorRange range = range_of(tensor);
  if (const NamedTensor* weight = paths_.find(memory_of(tensor))) range.parameter = weight->name;
  return range;
}

void CloseUp::begin(const std::vector<at::Tensor>& inputs, const std::vector<double>& scalars,
                    std::string name, bool is_node) {
  is_node_ = is_node;
  for (const at::Tensor& tensor : inputs) {
    if (!tensor.defined()) continue;
    inputs_.push_back(describe(tensor));
    known_.insert(memory_of(tensor));
    keeps_.push_back(tensor);
  }
  whole_ = {std::move(name), inputs_, scalars, {}};
}

void CloseUp::begin_inner(std::string name, const std::vector<at::Tensor>& inputs,
                          std::vector<double> scalars, bool writes) {
  Open open{{std::move(name), {}, std::move(scalars), {}}, true, writes};
  open.copies_raw =
      writes && inputs.size() > 1 && std::ranges::all_of(inputs, [&](const at::Tensor& tensor) {
        return tensor.defined() && raw_.contains(memory_of(tensor));
      });
  for (const at::Tensor& tensor : inputs) {
    if (!tensor.defined() || raw_.contains(memory_of(tensor))) continue;
    open.call.inputs.push_back(describe(tensor));
    const TensorRange& range = open.call.inputs.back();
    open.finite = open.finite && !is_bad({range.nans > 0, range.infs > 0});
    // A node reads what the forward pass saved for it.
    if (is_node_ && open_.empty() && known_.insert(memory_of(tensor)).second &&
        at::isFloatingType(tensor.scalar_type())) {
      inputs_.push_back(range);
      keeps_.push_back(tensor);
    }
  }
  open_.push_back(std::move(open));
}

bool CloseUp::take_output(const std::vector<at::Tensor>& results, TensorRange& into) const {
  bool any = false;
  for (const at::Tensor& tensor : results) {
    if (!tensor.defined()) continue;
    const bool bad = is_bad(finiteness_of(tensor));
    if (bad || !any) into = range_of(tensor);
    any = true;
    if (bad) return true;
  }
  return false;
}

void CloseUp::end_inner(const std::vector<at::Tensor>& results) {
  if (open_.empty()) return;
  Open open = std::move(open_.back());
  open_.pop_back();
  const bool raw = gives_raw_memory(open.call.name);
  std::vector<at::Tensor> written;
  for (const at::Tensor& tensor : results) {
    if (!tensor.defined()) continue;
    const c10::StorageImpl* const memory = memory_of(tensor);
    known_.insert(memory);
    keeps_.push_back(tensor);
    if (raw) raw_.insert(memory);
    if ((!open.writes || open.copies_raw) && raw_.contains(memory)) continue;
    raw_.erase(memory);
    written.push_back(tensor);
  }
  const bool bad = take_output(written, open.call.output);
  if (bad && open.finite && !culprit_) culprit_ = std::move(open.call);
}

void CloseUp::end(const std::vector<at::Tensor>& results) {
  take_output(results, output_);
  whole_.output = output_;
}

}  // namespace mezzo::insight
