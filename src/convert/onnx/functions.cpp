#include "convert/onnx/functions.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "convert/onnx/fields.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

constexpr std::uint64_t kMostNodes = 4'000'000;
constexpr std::uint64_t kMostCopies = 250'000;
// A bound on values that nodes read and make, inputs and initializers: one node may have any number
// of them.
constexpr std::uint64_t kMostValues = 50'000'000;

std::string_view domain_of(const Message& message, std::uint32_t number) {
  const std::string_view domain = message.text(number);
  return domain == "ai.onnx" ? std::string_view() : domain;
}

// Counts without making copies: every function once, however often it is called. Sums stop at the
// limits, so that they never overflow.
class Counter {
 public:
  explicit Counter(const Functions& functions) : functions_(functions) {}

  struct Size {
    std::uint64_t nodes = 0, copies = 0, values = 0;

    void add(const Size& other) {
      nodes = std::min(nodes + other.nodes, kMostNodes + 1);
      copies = std::min(copies + other.copies, kMostCopies + 1);
      values = std::min(values + other.values, kMostValues + 1);
    }
  };

  Size of_nodes(Message& message, std::uint32_t number, int depth) {
    if (depth > kDeepestNesting) raise("onnx", "graphs are nested deeper than ", kDeepestNesting);
    Size size;
    for (Field& field : message.fields()) {
      if (is_value(field, number)) size.add({0, 0, 1});
      if (field.number != number) continue;
      size.add({1, 0, 0});
      Message& node = field.open();
      for (Field& part : node.fields()) {
        if (part.number == field::node::kAttribute) add_bodies(part, depth, size);
        if (part.number == field::node::kInput || part.number == field::node::kOutput)
          size.add({0, 0, 1});
      }
      if (Message* called = functions_.called_by(node)) size.add(of_call(*called, depth));
    }
    return size;
  }

 private:
  struct Known {
    Size size;
    bool is_open = true;  // it is being counted
  };

  // Is it an input or an initializer of the scope whose nodes have that number?
  static bool is_value(const Field& field, std::uint32_t node_number) {
    if (node_number == field::function::kNode) return field.number == field::function::kInput;
    return field.number == field::graph::kInput || field.number == field::graph::kInitializer ||
           field.number == field::graph::kSparseInitializer;
  }

  void add_bodies(Field& attribute, int depth, Size& size) {
    namespace f = field::attribute;
    for (Field& field : attribute.open().fields()) {
      if (field.number == f::kGraph || field.number == f::kGraphs)
        size.add(of_nodes(field.open(), field::graph::kNode, depth + 1));
    }
  }

  Size of_call(Message& function, int depth) {
    const auto [found, is_new] = known_.try_emplace(&function);
    if (!is_new) {
      if (found->second.is_open)
        raise("onnx", "function '", function.text(field::function::kName), "' calls itself");
      return found->second.size;
    }
    Size size = of_nodes(function, field::function::kNode, depth + 1);
    size.add({0, 1, 0});
    known_[&function] = {size, false};
    return size;
  }

  const Functions& functions_;
  std::unordered_map<const Message*, Known> known_;
};

}  // namespace

Functions::Functions(Message& model) {
  namespace f = field::function;
  for (Field& field : model.fields()) {
    if (field.number != field::model::kFunctions) continue;
    Message& function = field.open();
    const Key key{domain_of(function, f::kDomain), function.text(f::kName),
                  function.text(f::kOverload)};
    if (!functions_.emplace(key, &function).second)
      raise("onnx", "function '", std::get<1>(key), "' is defined twice");
  }
}

Message* Functions::called_by(const Message& node) const {
  namespace f = field::node;
  if (functions_.empty()) return nullptr;
  const auto found = functions_.find(
      {domain_of(node, f::kDomain), node.text(f::kOpType), node.text(f::kOverload)});
  return found == functions_.end() ? nullptr : found->second;
}

void Functions::check_size(Message& main) const {
  const Counter::Size size = Counter(*this).of_nodes(main, field::graph::kNode, 1);
  if (size.nodes > kMostNodes) raise("onnx", "the model has more than ", kMostNodes, " nodes");
  if (size.values > kMostValues) {
    raise("onnx", "the nodes of the model read and make more than ", kMostValues,
          " values, those in calls of functions included");
  }
  if (size.copies > kMostCopies) {
    raise("onnx", "the model calls functions more than ", kMostCopies,
          " times, calls inside of them included");
  }
}

}  // namespace mezzo::convert
