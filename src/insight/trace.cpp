#include "insight/trace.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cctype>
#include <unordered_set>
#include <utility>

namespace mezzo::insight {

namespace {

bool is_cast(std::string_view name) {
  return name == "to" || name == "_to_copy" || name == "type_as";
}

}  // namespace

NodeOrder NodeOrder::next_here() {
  return {at::RecordFunction::currentThreadId(), at::sequence_number::peek()};
}

NodeOrder NodeOrder::of(const torch::autograd::Node& node) {
  return {node.thread_id(), node.sequence_nr()};
}

std::string name_of_node(std::string node) {
  // "torch::autograd::CppNode<(anonymous namespace)::Square>" is a custom function's.
  const std::size_t open = node.find("CppNode<");
  if (open != std::string::npos) {
    node = node.substr(open + 8);
    if (node.ends_with('>')) node.pop_back();
  }
  const std::size_t colons = node.rfind("::", node.find('<'));
  if (colons != std::string::npos) node = node.substr(colons + 2);
  const std::size_t backward = node.rfind("Backward");
  if (backward == std::string::npos || backward == 0 || open != std::string::npos) return node;
  node.resize(backward);
  std::string name;
  for (const char c : node) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isupper(letter) != 0 && !name.empty()) name += '_';
    name += static_cast<char>(std::tolower(letter));
  }
  return name;
}

int Trace::add(Unit unit) {
  if (unit.ordinal >= 0) unit.ordinal = observed_++;
  units_.push_back(std::move(unit));
  return size() - 1;
}

Trace::Memory& Trace::memory(const at::Tensor& tensor) {
  const c10::StorageImpl* const key = memory_of(tensor);
  const auto found = memories_.find(key);
  if (found != memories_.end()) return found->second;
  const at::Tensor& dense = tensor.is_sparse() ? tensor._values() : tensor;
  return memories_
      .emplace(
          key,
          Memory{c10::weak_intrusive_ptr<c10::StorageImpl>(dense.storage().getWeakStorageImpl()),
                 -1, -1, false})
      .first->second;
}

void Trace::read(int index, const at::Tensor& tensor, bool looks, int feeder) {
  const c10::StorageImpl* const key = memory_of(tensor);
  if (key == nullptr) return;
  Unit& reader = unit(index);
  const auto known = memories_.find(key);
  const bool is_known = known != memories_.end() && known->second.writer >= 0;
  if (!reader.backward) {
    const int writer = is_known ? known->second.writer : maker_of(tensor);
    if (writer >= 0 && writer != index) reader.reads.push_back(writer);
  } else if (const int writer = is_known ? known->second.writer : feeder;
             writer >= 0 && writer != index && unit(writer).backward) {
    reader.fed_by.push_back(writer);
  }
  if (const NamedTensor* weight = paths_.find(key)) reader.weights.push_back(weight);
  if (!looks) return;
  const Finiteness values = finiteness_of(tensor);
  if (!values.finite()) read_spoiled(index, tensor, values, feeder);
}

/// The unit of a tensor that no operator was seen to write, by its graph: a gradient that
/// autograd's own code brought. -1 where there is none.
int Trace::maker_of(const at::Tensor& tensor) const {
  constexpr std::size_t kMostNodes = 64;
  if (tensor.grad_fn() == nullptr) return -1;
  std::vector<const torch::autograd::Node*> open{tensor.grad_fn().get()};
  for (std::size_t i = 0; i < open.size() && i < kMostNodes; ++i) {
    const int made = forward_of(NodeOrder::of(*open[i]));
    if (made >= 0) return made;
    for (const auto& edge : open[i]->next_edges()) {
      const torch::autograd::Node* const node = edge.function.get();
      if (node != nullptr && std::ranges::find(open, node) == open.end()) open.push_back(node);
    }
  }
  return -1;
}

void Trace::read_spoiled(int index, const at::Tensor& tensor, Finiteness values, int feeder) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && !values.nan) {
    unit(index).reads_fill = true;
    return;
  }
  Memory& place = memory(tensor);
  // Kernels of nodes may write without the dispatcher's knowledge what an operator of theirs only
  // made room for.
  const bool by_node = place.writer >= 0 && unit(place.writer).backward;
  if (place.spoiler < 0) place.spoiler = by_node ? place.writer : feeder;
  if (place.spoiler < 0 && unit(index).backward && unit(index).forward >= 0) {
    // Saved by the forward operator: data that it was given, or something of its own making.
    unit(index).causes.push_back(unit(index).forward);
    return;
  }
  if (place.spoiler < 0) {
    const NamedTensor* weight = paths_.find(memory_of(tensor));
    if (weight != nullptr || tensor.grad_fn() == nullptr) {
      if (weight == nullptr && is_additive_mask(tensor)) {
        unit(index).reads_fill = true;
        return;
      }
      unit(index).leaves.push_back(add_leaf(index, weight, tensor));
      return;
    }
    const int made = infer_unit(tensor);
    memory(tensor).spoiler = made;
    if (made != index) unit(index).causes.push_back(made);
    return;
  }
  if (place.is_fill && !values.nan) {
    read_fill(index, tensor, place);
  } else if (place.spoiler != index) {
    unit(index).causes.push_back(place.spoiler);
  }
}

int Trace::add_leaf(int index, const NamedTensor* weight, const at::Tensor& tensor) {
  leaves_.push_back({weight, range_of(tensor), index});
  return static_cast<int>(leaves_.size()) - 1;
}

/// Infinities that the program wrote: a mask, all of a tensor, or a value among the data.
void Trace::read_fill(int index, const at::Tensor& tensor, const Memory& place) {
  Unit& reader = unit(index);
  const bool is_data = !reader.backward && !tensor.requires_grad();
  if (is_data && place.partly_filled && !is_additive_mask(tensor) && !is_infinite_all(tensor)) {
    reader.leaves.push_back(add_leaf(index, nullptr, tensor));
    return;
  }
  reader.reads_fill = true;
  if (place.spoiler == index) return;
  reader.fills.push_back(place.spoiler);
  if (is_data && unit(place.spoiler).gives_infinity && holds_positive_infinity(tensor))
    reader.fill_leaves.push_back(add_leaf(index, nullptr, tensor));
}

/// The unit of a result that no observer saw being written: that of an autograd function, whose
/// kernels may write to memory themselves.
int Trace::infer_unit(const at::Tensor& tensor) {
  const auto& node = tensor.grad_fn();
  const int forward = forward_of(NodeOrder::of(*node));
  if (forward >= 0) return forward;
  Unit unseen;
  unseen.name = name_of_node(node->name());
  for (const auto& edge : node->next_edges()) {
    if (edge.function == nullptr) continue;
    const int before = forward_of(NodeOrder::of(*edge.function));
    if (before < 0) continue;
    unseen.reads.push_back(before);
    // Memory that an operator read is known only by its maker.
    for (const auto& [key, place] : memories_) {
      if (place.spoiler == before && !place.is_fill) {
        unseen.causes.push_back(before);
        break;
      }
    }
  }
  for (const auto& edge : node->next_edges()) {
    if (edge.function == nullptr) continue;
    for (const NamedTensor& weight : paths_.all()) {
      if (torch::autograd::impl::try_get_grad_accumulator(weight.tensor) == edge.function)
        unseen.weights.push_back(&weight);
    }
  }
  const int made = add(std::move(unseen));
  memory(tensor).writer = made;
  return made;
}

/// NaN, and lone values that are not finite, are data where an operator puts them into a tensor
/// that autograd does not record: its readers see the tensor, and the place in it.
bool Trace::takes_from_numbers(const Unit& writer, const at::Tensor& tensor) const {
  if (writer.backward || tensor.requires_grad() || !writer.causes.empty()) return false;
  if (writer.leaves.empty()) return writer.gives_nan;
  return std::ranges::all_of(writer.leaves, [this](int leaf) {
    const BadLeaf& each = leaves_[static_cast<std::size_t>(leaf)];
    return each.weight == nullptr && each.range.sizes.empty();
  });
}

void Trace::wrote(int index, const at::Tensor& tensor, bool looks) {
  if (memory_of(tensor) == nullptr) return;
  Memory& place = memory(tensor);
  place.writer = index;
  if (!looks) return;
  const Finiteness values = finiteness_of(tensor);
  const Unit& writer = unit(index);
  const bool is_part = is_part_of_memory(tensor);
  if (values.finite()) {
    place.spoiler = -1;
    place.partly_filled = place.partly_filled && is_part;
    return;
  }
  if (takes_from_numbers(writer, tensor)) {
    place.spoiler = -1;
    place.is_fill = false;
    return;
  }
  place.spoiler = index;
  place.is_fill =
      writer.reads_fill && !values.nan && writer.causes.empty() && writer.leaves.empty();
  place.partly_filled = place.is_fill && is_part && (place.partly_filled || writer.gives_infinity);
}

void Trace::note_nodes(int index, const NodeOrder& begin, const NodeOrder& end) {
  if (begin < end) nodes_.emplace(begin, std::pair(end.number, index));
}

int Trace::forward_of(const NodeOrder& node) const {
  for (auto it = nodes_.upper_bound(node); it != nodes_.begin();) {
    --it;
    if (it->first.thread != node.thread) break;
    const auto [end, index] = it->second;
    if (node.number < end) return unit(index).backward ? unit(index).forward : index;
  }
  return -1;
}

int Trace::first_after(const NodeOrder& node) const {
  const auto found = starts_.upper_bound(node);
  return found == starts_.end() || found->first.thread != node.thread ? -1 : found->second;
}

bool Trace::Origin::leaves_first() const {
  return !leaves.empty() && (unit < 0 || leaves.front()->reader <= unit);
}

/// From tensors that are not finite back to the first units and leaves; `over_fills`: from those
/// that a fill value reached, back to the data that were filled.
void Trace::walk_back(const std::vector<at::Tensor>& tensors, bool over_fills, Origin& into) const {
  std::unordered_set<int> seen;
  std::vector<int> open;
  for (const at::Tensor& tensor : tensors) {
    const auto found = memories_.find(memory_of(tensor));
    if (found == memories_.end() || found->second.spoiler < 0) continue;
    if (over_fills && !found->second.is_fill) continue;
    open.push_back(found->second.spoiler);
  }
  while (!open.empty()) {
    const int index = open.back();
    open.pop_back();
    if (!seen.insert(index).second) continue;
    const Unit& here = unit(index);
    for (const int leaf : over_fills ? here.fill_leaves : here.leaves)
      into.leaves.push_back(&leaves_[static_cast<std::size_t>(leaf)]);
    const std::vector<int>& from = over_fills ? here.fills : here.causes;
    open.insert(open.end(), from.begin(), from.end());
    if (over_fills || !here.causes.empty() || !here.leaves.empty()) continue;
    if (into.unit < 0 || index < into.unit) into.unit = index;
  }
}

Trace::Origin Trace::origin_of(const std::vector<at::Tensor>& gradients,
                               const std::vector<at::Tensor>& results) const {
  std::vector<at::Tensor> broken;
  for (const at::Tensor& result : results) {
    const auto found = memories_.find(memory_of(result));
    if (found != memories_.end() && !found->second.is_fill) broken.push_back(result);
  }
  Origin origin;
  walk_back(gradients, /*over_fills=*/false, origin);
  walk_back(broken, /*over_fills=*/false, origin);
  walk_back(results, /*over_fills=*/true, origin);
  std::ranges::stable_sort(origin.leaves, {}, &BadLeaf::reader);
  return origin;
}

int Trace::anchor_of(int index) const {
  const Unit& here = unit(index);
  if (!here.backward) return index;
  if (here.forward < 0) return here.near >= 0 ? anchor_of(here.near) : index;
  int forward = here.forward;
  while (is_cast(unit(forward).name) && !unit(forward).reads.empty())
    forward = unit(forward).reads.front();
  return forward;
}

const std::string& Trace::name_of(int index) const {
  const Unit& here = unit(index);
  return here.forward >= 0 ? unit(here.forward).name : here.name;
}

std::vector<const NamedTensor*> Trace::weights_before(int index) const {
  std::vector<const NamedTensor*> weights;
  std::unordered_set<int> seen;
  std::vector<int> open{anchor_of(index)};
  while (!open.empty()) {
    const int next = open.back();
    open.pop_back();
    if (!seen.insert(next).second) continue;
    const Unit& here = unit(next);
    weights.insert(weights.end(), here.weights.begin(), here.weights.end());
    open.insert(open.end(), here.reads.begin(), here.reads.end());
  }
  return weights;
}

std::string Trace::nearest(int start, bool before) const {
  std::unordered_map<int, std::vector<int>> readers;
  // A gradient that the forward pass reads (a penalty's) stands beside the operator that it is of.
  if (!before) {
    for (int i = 0; i < size(); ++i) {
      for (const int from : unit(i).reads) {
        readers[from].push_back(i);
        if (unit(from).backward && unit(from).forward >= 0)
          readers[unit(from).forward].push_back(i);
      }
    }
  }
  const auto read_by = [this](int index) {
    const Unit& here = unit(index);
    if (!here.backward) return here.reads;
    std::vector<int> from = here.fed_by;
    if (here.forward >= 0) from.push_back(here.forward);
    return from;
  };
  std::unordered_set<int> seen{start};
  std::vector<int> level{start};
  while (!level.empty()) {
    std::vector<int> next;
    for (const int index : level) {
      const std::vector<int> neighbours = before ? read_by(index) : readers[index];
      for (const int each : neighbours) {
        if (seen.insert(each).second) next.push_back(each);
      }
    }
    // If several are equally far, the operator that ran closest.
    std::ranges::sort(next);
    if (before) std::ranges::reverse(next);
    for (const int index : next) {
      if (!unit(index).weights.empty()) return unit(index).weights.front()->module;
    }
    level = std::move(next);
  }
  return {};
}

std::vector<std::string> Trace::modules_around(int index) const {
  const int anchor = anchor_of(index);
  const Unit& here = unit(anchor);
  if (!here.weights.empty()) return {here.weights.front()->module};
  std::vector<std::string> modules{nearest(anchor, true), nearest(anchor, false)};
  std::erase(modules, "");
  return modules;
}

std::string Trace::module_of(int index) const {
  const Unit& of = unit(index);
  const int anchor = of.backward && of.forward >= 0 ? of.forward : anchor_of(index);
  const Unit& here = unit(anchor);
  if (!here.weights.empty()) return here.weights.front()->module;
  const std::string before = nearest(anchor, true), after = nearest(anchor, false);
  if (before.empty() && after.empty()) return {};
  if (before.empty()) return "before " + after;
  if (after.empty()) return "after " + before;
  return "between " + before + " and " + after;
}

}  // namespace mezzo::insight
