// Types of all values, from the schemas: what the variables of a node are bound to, and the
// operators whose output type stands in an attribute. The result of an unknown operator has the
// type that its readers demand, or else the one that the file declares.
#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "convert/graph/graph.h"
#include "convert/onnx/fields.h"

namespace mezzo::convert {
namespace {

class Inference {
 public:
  explicit Inference(Graph& graph) : graph_(graph) {}

  void run() {
    scope(0);
    // Each turn makes more types known.
    while (take_from_readers() || take_declared()) scope(0);
  }

 private:
  void scope(ScopeId id) {
    for (const NodeId node : graph_.scope(id).ordered) this->node(node);
  }

  // A model is valid before it is converted: what is bound to one variable with a known value has
  // its type.
  bool take_from_readers() {
    bool found = false;
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      if (!node.is_described() || !node.bodies.empty()) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId in = node.inputs[i];
        if (in == kNone || graph_.value(in).type.is_known()) continue;
        set(in, type_among(node, node.schema->input(i)));
        found = found || graph_.value(in).type.is_known();
      }
    }
    return found;
  }

  // The plain type that the formal's variable is bound to, or the only one that it may have.
  Type type_among(const Node& node, const Formal* formal) const {
    if (formal == nullptr || formal->arity == Arity::kVariadicOfAnyTypes) return {};
    const Variable& variable = node.schema->variable_of(*formal);
    if (variable.is_fixed) return only_type(variable.types());
    const auto bound = [&](const std::vector<ValueId>& values, bool outputs) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Formal* other = outputs ? node.schema->output(i) : node.schema->input(i);
        const Type type = type_of(values[i]);
        if (other != nullptr && other->variable == formal->variable && type.is_plain_tensor())
          return type;
      }
      return Type();
    };
    const Type read = bound(node.inputs, false);
    return read.is_known() ? read : bound(node.outputs, true);
  }

  bool take_declared() {
    bool found = false;
    for (Value& value : graph_.values) {
      if (value.type.is_known() || !value.declared.is_known()) continue;
      value.type = value.declared;
      found = true;
    }
    return found;
  }

  Type type_of(ValueId id) const { return id == kNone ? Type() : graph_.value(id).type; }
  Type input(const Node& node, std::size_t i) const {
    return i < node.inputs.size() ? type_of(node.inputs[i]) : Type();
  }

  void set(ValueId id, const Type& type) {
    if (id != kNone && type.is_known()) graph_.value(id).type = type;
  }

  void set_input(ScopeId id, std::size_t i, const Type& type) {
    const Scope& scope = graph_.scope(id);
    if (i < scope.inputs.size()) set(scope.inputs[i], type);
  }

  Type output_of(ScopeId id, std::size_t i) const {
    if (id == kNone) return {};
    const Scope& scope = graph_.scope(id);
    return i < scope.outputs.size() ? type_of(scope.outputs[i]) : Type();
  }

  void node(NodeId id) {
    const Node node = graph_.node(id);
    if (node.instance != kNone) return call(node);
    if (!node.bodies.empty()) return with_bodies(node);
    if (node.schema == nullptr) return;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNone) set(node.outputs[i], output_type(node, i));
    }
  }

  void call(const Node& node) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      set_input(node.instance, i, input(node, i));
    scope(node.instance);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      set(node.outputs[i], output_of(node.instance, i));
    }
  }

  void with_bodies(const Node& node) {
    const ScopeId body = node.body("body");
    if (node.op == "Loop" && body != kNone) {
      for (std::size_t i = 0; i + 2 < node.inputs.size(); ++i) {
        set_input(body, i + 2, input(node, i + 2));
      }
    } else if (node.op == "Scan" && body != kNone) {
      const std::size_t first = node.opset < 9 ? 1 : 0;  // Scan-8 has sequence lengths in front
      for (std::size_t i = first; i < node.inputs.size(); ++i) {
        set_input(body, i - first, input(node, i));
      }
    } else if (node.op == "SequenceMap" && body != kNone) {
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const Type type = input(node, i);
        set_input(body, i, type.wraps[0] == Wrap::kSequence ? type.inside() : type);
      }
    }
    for (const Body& each : node.bodies) scope(each.scope);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      set(node.outputs[i], body_output(node, i));
    }
  }

  Type body_output(const Node& node, std::size_t i) const {
    if (node.op == "If") {
      const Type then = output_of(node.body("then_branch"), i);
      return then.is_known() ? then : output_of(node.body("else_branch"), i);
    }
    const ScopeId body = node.body("body");
    if (body == kNone) return {};
    if (node.op == "Loop") return output_of(body, i + 1);
    if (node.op == "Scan") return output_of(body, i);
    if (node.op == "SequenceMap") return output_of(body, i).wrapped(Wrap::kSequence);
    return {};
  }

  Type output_type(const Node& node, std::size_t i) const {
    if (const auto special = by_attribute(node, i)) return *special;
    const Formal* formal = node.schema->output(i);
    if (formal == nullptr) return {};
    const Variable& variable = node.schema->variable_of(*formal);
    if (!variable.is_fixed && formal->arity != Arity::kVariadicOfAnyTypes) {
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const Formal* in = node.schema->input(k);
        if (in != nullptr && in->variable == formal->variable &&
            type_of(node.inputs[k]).is_known()) {
          return type_of(node.inputs[k]);
        }
      }
    }
    return only_type(variable.types());
  }

  static Type only_type(const TypeSet& set) {
    if (set.others || set.optional != 0 || set.optional_sequence != 0) return {};
    if (std::popcount(set.tensor) == 1 && set.sequence == 0) {
      return tensor_of(static_cast<Element>(std::countr_zero(set.tensor)));
    }
    if (std::popcount(set.sequence) == 1 && set.tensor == 0) {
      return tensor_of(static_cast<Element>(std::countr_zero(set.sequence)))
          .wrapped(Wrap::kSequence);
    }
    return {};
  }

  Element element(const Node& node, std::string_view attribute, Element otherwise) const {
    return static_cast<Element>(
        graph_.integer(node, attribute, static_cast<std::int64_t>(otherwise)) & 0xFF);
  }

  // Before opset 6 Cast named its type: to="FLOAT16".
  Element cast_target(const Node& node) const {
    const Message* to = graph_.attribute(node, "to");
    if (to == nullptr) return Element::kUndefined;
    const std::string_view name = to->text(field::attribute::kString);
    if (name.empty()) return static_cast<Element>(to->number(field::attribute::kInt) & 0xFF);
    std::string lower(name);
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    return parse_element(lower).value_or(Element::kUndefined);
  }

  std::optional<Type> by_attribute(const Node& node, std::size_t i) const {
    const std::string_view op = node.op;
    if (!node.domain.empty()) return std::nullopt;
    if (op == "Cast" || op == "BitCast") return known(cast_target(node), input(node, 0));
    if (op == "CastLike") return input(node, 0).with(input(node, 1).element);
    if (op == "Constant") return constant_type(node);
    if (op == "ConstantOfShape") return tensor_of(value_element(node, Element::kFloat));
    if (op == "EyeLike" || op == "Bernoulli" || op == "RandomNormalLike" ||
        op == "RandomUniformLike") {
      return tensor_of(element(node, "dtype", input(node, 0).element));
    }
    if (op == "RandomNormal" || op == "RandomUniform") {
      return tensor_of(element(node, "dtype", Element::kFloat));
    }
    if (op == "Multinomial") return tensor_of(element(node, "dtype", Element::kInt32));
    if (op == "HannWindow" || op == "HammingWindow" || op == "BlackmanWindow" ||
        op == "MelWeightMatrix") {
      return tensor_of(element(node, "output_datatype", Element::kFloat));
    }
    if (op == "QuantizeLinear") return quantized_type(node);
    if (op == "DequantizeLinear") return dequantized_type(node);
    if ((op == "LayerNormalization") && i > 0) {
      return tensor_of(element(node, "stash_type", Element::kFloat));
    }
    return of_containers(node);
  }

  static Type known(Element element, const Type& like) {
    if (element == Element::kUndefined) return {};
    return like.is_known() ? like.with(element) : tensor_of(element);
  }

  Element value_element(const Node& node, Element otherwise) const {
    Message* value = graph_.attribute(node, "value");
    Field* tensor = value == nullptr ? nullptr : value->find(field::attribute::kTensor);
    if (tensor == nullptr) return otherwise;
    return static_cast<Element>(tensor->open().number(field::tensor::kType) & 0xFF);
  }

  Type constant_type(const Node& node) const {
    constexpr std::array<std::pair<std::string_view, Element>, 6> kKinds{
        {{"value_float", Element::kFloat},
         {"value_floats", Element::kFloat},
         {"value_int", Element::kInt64},
         {"value_ints", Element::kInt64},
         {"value_string", Element::kString},
         {"value_strings", Element::kString}}};
    for (const auto& [attribute, element] : kKinds) {
      if (graph_.attribute(node, attribute) != nullptr) return tensor_of(element);
    }
    if (Message* sparse = graph_.attribute(node, "sparse_value")) {
      Field* tensor = sparse->find(field::attribute::kSparseTensor);
      Field* values =
          tensor == nullptr ? nullptr : tensor->open().find(field::sparse_tensor::kValues);
      if (values == nullptr) return {};
      return tensor_of(static_cast<Element>(values->open().number(field::tensor::kType) & 0xFF));
    }
    const Element element = value_element(node, Element::kUndefined);
    return element == Element::kUndefined ? Type() : tensor_of(element);
  }

  Type quantized_type(const Node& node) const {
    if (input(node, 2).is_known()) return input(node, 2);
    return tensor_of(element(node, "output_dtype", Element::kUndefined) == Element::kUndefined
                         ? Element::kUint8
                         : element(node, "output_dtype", Element::kUndefined));
  }

  Type dequantized_type(const Node& node) const {
    const Element named = element(node, "output_dtype", Element::kUndefined);
    if (named != Element::kUndefined) return tensor_of(named);
    return input(node, 1).is_known() ? input(node, 1) : tensor_of(Element::kFloat);
  }

  std::optional<Type> of_containers(const Node& node) const {
    const std::string_view op = node.op;
    const Type first = input(node, 0);
    if (op == "SequenceEmpty") {
      return tensor_of(element(node, "dtype", Element::kFloat)).wrapped(Wrap::kSequence);
    }
    if (op == "SequenceConstruct" || op == "SplitToSequence") return first.wrapped(Wrap::kSequence);
    if (op == "SequenceAt" || op == "ConcatFromSequence") return first.inside();
    if (op == "Optional") {
      if (first.is_known()) return first.wrapped(Wrap::kOptional);
      Message* type = graph_.attribute(node, "type");
      Field* proto = type == nullptr ? nullptr : type->find(field::attribute::kTypeProto);
      return proto == nullptr ? Type() : read_type(proto->open()).wrapped(Wrap::kOptional);
    }
    if (op == "OptionalGetElement") {
      return first.wraps[0] == Wrap::kOptional ? first.inside() : first;
    }
    return std::nullopt;
  }

  Graph& graph_;
};

}  // namespace

void infer_types(Graph& graph) {
  Inference(graph).run();
}

}  // namespace mezzo::convert
