#include "deploy/script/weights.h"

#include <algorithm>
#include <unordered_map>

#include "deploy/script/result_types.h"

namespace mezzo::deploy::script {
namespace {

using torch::jit::Node;
using torch::jit::Use;
using torch::jit::Value;

/// Do all readers of the value, through views and lists, cast it to the low type?
class LowReaders {
 public:
  explicit LowReaders(const Verdicts& verdicts) : verdicts_(verdicts) {}

  /// Counts the readers that do in `readers`.
  bool all_want_low(const Value* value, std::int64_t& readers) const {
    return std::ranges::all_of(value->uses(),
                               [&](const Use& use) { return wants_low(use, readers); });
  }

 private:
  bool wants_low(const Use& use, std::int64_t& readers) const {
    const Node* const node = use.user;
    if (reads_no_values(*node)) return true;
    if (is_view(*node) && use.offset == 0) return all_outputs(*node, readers);
    if (node->kind() == c10::prim::ListConstruct || node->kind() == c10::prim::ListUnpack)
      return all_outputs(*node, readers);
    const auto found = verdicts_.find(node);
    if (found == verdicts_.end() || found->second.way != Way::kLow) return false;
    const auto& operands = found->second.operands;
    if (std::ranges::find(operands, use.offset) == operands.end()) return false;
    ++readers;
    return true;
  }

  bool all_outputs(const Node& node, std::int64_t& readers) const {
    return std::ranges::all_of(node.outputs(),
                               [&](const Value* output) { return all_want_low(output, readers); });
  }

  const Verdicts& verdicts_;
};

/// Calls `visit` with the place and the value of each read of a tensor.
template <typename Visit>
void for_each_read(const ScriptMethod& method, const torch::jit::Module& module,
                   const Visit& visit) {
  for_each_node(method.graph->block(), [&](Node* node) {
    if (node->kind() != c10::prim::GetAttr) return;
    const auto place = attribute_of(node->output(), module);
    if (place && place->value().isTensor() && place->value().toTensor().defined())
      visit(*place, node->output());
  });
}

/// Memory by which tied weights know each other.
const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? static_cast<const void*>(tensor.storage().unsafeGetStorageImpl())
                              : static_cast<const void*>(tensor.unsafeGetTensorImpl());
}

}  // namespace

std::set<std::string> low_weights(const std::vector<ScriptMethod>& methods,
                                  const torch::jit::Module& module, at::ScalarType low) {
  struct Group {
    bool is_low = true;
    std::int64_t readers = 0;
    std::set<std::string> paths = {};
  };
  std::unordered_map<const void*, Group> groups;
  std::set<std::string> written;
  for (const ScriptMethod& method : methods)
    written.insert(method.written.begin(), method.written.end());
  for (const ScriptMethod& method : methods) {
    const LowReaders readers(method.verdicts);
    for_each_read(method, module, [&](const AttributePlace& place, const Value* value) {
      const at::Tensor tensor = place.value().toTensor();
      Group& group = groups[memory_of(tensor)];
      group.paths.insert(place.path);
      group.is_low = group.is_low &&
                     (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == low) &&
                     !written.contains(place.path) && !method.aliases->hasWriters(value) &&
                     readers.all_want_low(value, group.readers);
    });
  }
  std::set<std::string> paths;
  for (const auto& [memory, group] : groups) {
    if (group.is_low && group.readers != 0) paths.insert(group.paths.begin(), group.paths.end());
  }
  return paths;
}

std::int64_t store_low(const std::set<std::string>& weights, const torch::jit::Module& module,
                       at::ScalarType low) {
  struct Stored {
    at::Tensor original, low;  // the original lives on, or another could get its address
  };
  std::map<const at::TensorImpl*, Stored> stored;
  for (const auto& attribute : module.named_attributes()) {
    if (!weights.contains(attribute.name)) continue;
    const at::Tensor tensor = attribute.value.toTensor();
    Stored& both = stored[tensor.unsafeGetTensorImpl()];
    if (!both.low.defined()) {
      both = {tensor, tensor.detach().to(low)};
      both.low.set_requires_grad(tensor.requires_grad());
    }
    const std::size_t dot = attribute.name.rfind('.');
    const bool is_inner = dot != std::string::npos;
    c10::intrusive_ptr<c10::ivalue::Object> holder = module._ivalue();
    std::string rest = is_inner ? attribute.name.substr(0, dot) : "";
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('.'), rest.size());
      holder = holder->getAttr(rest.substr(0, end)).toObject();
      rest = end == rest.size() ? "" : rest.substr(end + 1);
    }
    holder->setAttr(is_inner ? attribute.name.substr(dot + 1) : attribute.name, both.low);
  }
  return static_cast<std::int64_t>(stored.size());
}

Value* insert_to(Value* value, at::ScalarType type, Node* where) {
  torch::jit::Graph& graph = *where->owningGraph();
  const torch::jit::WithInsertPoint here(where);
  const std::vector<torch::jit::NamedValue> arguments{
      value, c10::IValue(static_cast<std::int64_t>(type)), c10::IValue(false), c10::IValue(false),
      c10::IValue()};
  Value* const cast = graph.insert(c10::aten::to, arguments);
  cast->node()->setScope(where->scope());
  cast->setType(c10::TensorType::get());
  return cast;
}

std::vector<Value*> cast_weights(ScriptMethod& method, const std::set<std::string>& weights,
                                 const torch::jit::Module& module, at::ScalarType low) {
  std::map<std::string, std::vector<Value*>> reads;
  for_each_read(method, module, [&](const AttributePlace& place, Value* value) {
    if (weights.contains(place.path) && place.value().toTensor().scalar_type() != low)
      reads[place.path].push_back(value);
  });
  std::vector<Value*> casts;
  torch::jit::Graph& graph = *method.graph;
  Node* const begin = *graph.block()->nodes().begin();
  for (auto& [path, values] : reads) {
    Value* const cast = insert_to(read_attribute(graph, path, begin), low, begin);
    for (Value* value : values) value->replaceAllUsesWith(cast);
    casts.push_back(cast);
  }
  return casts;
}

std::unordered_map<const Value*, Fact> facts_of_weights(const ScriptMethod& method,
                                                        const std::set<std::string>& weights,
                                                        const torch::jit::Module& module) {
  std::unordered_map<const Value*, Fact> facts;
  for_each_read(method, module, [&](const AttributePlace& place, const Value* value) {
    if (!weights.contains(place.path)) return;
    facts[value] = {
        .kind = Kind::kLow, .sized = place.value().toTensor().dim() > 0, .touched = true};
  });
  return facts;
}

}  // namespace mezzo::deploy::script
