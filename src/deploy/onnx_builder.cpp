#include "deploy/onnx_builder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace mezzo::deploy::detail {
namespace {

using convert::MadeNode;

convert::MadeAttribute made_attribute(const OnnxAttribute& value, const auto& made) {
  return std::visit(
      [&](const auto& one) -> convert::MadeAttribute {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, at::Tensor>) {
          return made(one, "");
        } else {
          return one;
        }
      },
      value);
}

constexpr std::int64_t kSmall = 64;

std::string content_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << tensor.sizes();
  if (tensor.numel() > kSmall) {
    text << tensor.unsafeGetTensorImpl();
  } else {
    const at::Tensor stored = real_form(tensor.detach().to(at::kCPU)).contiguous();
    text << std::string_view(static_cast<const char*>(stored.data_ptr()), stored.nbytes());
  }
  return text.str();
}

/// The identity of a node; small tensors by what they hold, large ones by their place in memory.
std::string key_of(std::string_view type, const Names& inputs, const OnnxAttributes& attributes,
                   std::size_t outputs) {
  std::ostringstream key;
  key.precision(17);
  key << type << '(';
  for (const std::string& input : inputs) key << input << ',';
  key << ')' << outputs;
  for (const auto& [name, value] : attributes) {
    key << ' ' << name << '=' << value.index();
    std::visit(
        [&](const auto& one) {
          using T = std::decay_t<decltype(one)>;
          if constexpr (std::is_same_v<T, at::Tensor>) {
            key << content_of(one);
          } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>> ||
                               std::is_same_v<T, std::vector<double>> ||
                               std::is_same_v<T, std::vector<std::string>>) {
            for (const auto& each : one) key << each << ',';
          } else {
            key << one;
          }
        },
        value);
  }
  return key.str();
}

void names_used(const convert::MadeGraph& graph, std::unordered_set<std::string>* used) {
  for (const MadeNode& node : graph.nodes) {
    used->insert(node.inputs.begin(), node.inputs.end());
    for (const auto& [name, value] : node.attributes) {
      if (const auto* body = std::get_if<std::shared_ptr<convert::MadeGraph>>(&value))
        names_used(**body, used);
    }
  }
  for (const convert::MadeValue& output : graph.outputs) used->insert(output.name);
}

/// Leaves what something needs; `used` begins with the names of the graph's outputs.
std::vector<MadeNode> needed_nodes(std::vector<MadeNode> nodes,
                                   std::unordered_set<std::string>* used) {
  std::vector<MadeNode> kept;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    MadeNode& node = nodes[i];
    const bool needed = std::any_of(node.outputs.begin(), node.outputs.end(),
                                    [&](const std::string& name) { return used->contains(name); });
    if (!needed) continue;
    used->insert(node.inputs.begin(), node.inputs.end());
    for (const auto& [name, value] : node.attributes) {
      if (const auto* body = std::get_if<std::shared_ptr<convert::MadeGraph>>(&value))
        names_used(**body, used);
    }
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

void rename_in(convert::MadeGraph& graph, const std::map<std::string, std::string>& names) {
  const auto rename = [&](std::string& name) {
    const auto found = names.find(name);
    if (found != names.end()) name = found->second;
  };
  for (MadeNode& node : graph.nodes) {
    for (std::string& input : node.inputs) rename(input);
    for (std::string& output : node.outputs) rename(output);
    for (auto& [name, value] : node.attributes) {
      if (auto* body = std::get_if<std::shared_ptr<convert::MadeGraph>>(&value))
        rename_in(**body, names);
    }
  }
  for (convert::MadeValue& output : graph.outputs) rename(output.name);
}

bool is_random(std::string_view type) {
  return type.starts_with("Random") || type == "Bernoulli" || type == "Multinomial";
}

}  // namespace

std::int64_t onnx_type(at::ScalarType type) {
  switch (c10::toRealValueType(type)) {
    case at::kFloat:
      return 1;
    case at::kByte:
      return 2;
    case at::kChar:
      return 3;
    case at::kShort:
      return 5;
    case at::kInt:
      return 6;
    case at::kLong:
      return 7;
    case at::kBool:
      return 9;
    case at::kHalf:
      return 10;
    case at::kDouble:
      return 11;
    case at::kBFloat16:
      return 16;
    default:
      break;
  }
  raise<UnsupportedError>("export_onnx", "ONNX has no operators for tensors of type ",
                          c10::toString(type), "; compute with real float tensors");
}

convert::MadeTensor Builder::made(const at::Tensor& value, std::string name) const {
  at::Tensor stored = real_form(value.detach().to(at::kCPU)).contiguous();
  if (writes_in_place && stored.is_alias_of(value)) stored = stored.clone();
  convert::MadeTensor tensor;
  tensor.name = std::move(name);
  tensor.element = static_cast<convert::Element>(onnx_type(value.scalar_type()));
  tensor.dims = stored.sizes().vec();
  tensor.bytes = {static_cast<const char*>(stored.data_ptr()), stored.nbytes()};
  tensor.owner = std::make_shared<at::Tensor>(stored);
  return tensor;
}

std::string Builder::fresh(const std::string& hint) {
  if (taken_.insert(hint).second) return hint;
  for (std::size_t i = 1;; ++i) {
    std::string name = hint + "_" + std::to_string(i);
    if (taken_.insert(name).second) return name;
  }
}

std::string Builder::op(std::string_view type, const Names& inputs,
                        const OnnxAttributes& attributes) {
  return ops(type, inputs, attributes, 1).front();
}

Names Builder::ops(std::string_view type, const Names& inputs, const OnnxAttributes& attributes,
                   std::size_t outputs) {
  const std::string key = key_of(type, inputs, attributes, outputs);
  for (const Scope& scope : scopes_) {
    const auto known = scope.known.find(key);
    if (known != scope.known.end() && !is_random(type)) return known->second;
  }
  draws_ = draws_ || is_random(type);
  MadeNode node;
  const std::size_t colon = type.find("::");
  node.op = colon == std::string_view::npos ? type : type.substr(colon + 2);
  if (colon != std::string_view::npos) {
    node.domain = type.substr(0, colon);
    domains_.insert(node.domain);
  }
  node.inputs = inputs;
  while (!node.inputs.empty() && node.inputs.back().empty()) node.inputs.pop_back();
  for (std::size_t i = 0; i < outputs; ++i) node.outputs.push_back(fresh(node.op + "_out"));
  for (const auto& [name, value] : attributes) {
    node.attributes.emplace(
        name, made_attribute(
                  value, [&](const at::Tensor& one, const char* own) { return made(one, own); }));
  }
  Names names = node.outputs;
  scopes_.back().known[key] = names;
  scopes_.back().nodes.push_back(std::move(node));
  return names;
}

std::string Builder::own_node(std::string_view type, const std::string& input) {
  MadeNode node;
  node.op = type;
  node.inputs = {input};
  node.outputs = {fresh(node.op + "_out")};
  std::string name = node.outputs[0];
  add_node(std::move(node));
  return name;
}

std::string Builder::state_of(const OnnxValue& value, at::ScalarType type) {
  const c10::IValue example = detail::example_of(value, 0);
  if (!example.isTensor() && value.is_constant())
    return tensor(at::full({1}, example.toScalar(), at::TensorOptions(type)));
  return cast(name_of(value), element_type(example), type);
}

void Builder::add_node(MadeNode node) {
  scopes_.back().nodes.push_back(std::move(node));
}

std::string Builder::tensor(const at::Tensor& value, const std::string& hint) {
  if (value.numel() <= kSmall) {
    std::string& name = small_[content_of(value)];
    if (name.empty()) {
      name = fresh(hint.empty() ? "constant" : hint);
      initializers_.push_back(made(value, name));
    }
    return name;
  }
  const Place place{value.const_data_ptr(), value.sizes().vec(), value.strides().vec(),
                    value.scalar_type()};
  const auto known = large_.find(place);
  if (known != large_.end() && !writes_in_place) return known->second.first;
  std::string name = fresh(hint.empty() ? "constant" : hint);
  large_[place] = {name, value};
  initializers_.push_back(made(value, name));
  return name;
}

std::string Builder::ints(const std::vector<std::int64_t>& values) {
  return tensor(at::tensor(values, at::kLong));
}

std::string Builder::integer(std::int64_t value) {
  return tensor(at::scalar_tensor(value, at::kLong));
}

std::string Builder::number(double value, at::ScalarType type) {
  return tensor(at::scalar_tensor(value, at::kDouble).to(type));
}

void Builder::refresh(Operand& operand) {
  if (!operand.view) return;
  View& view = *operand.view;
  refresh(*view.base);
  if (view.base->version == view.base_version) return;
  if (view.base->is_constant) {  // whose examples the view shows already
    operand.name.clear();
    ++operand.version;
    view.base_version = view.base->version;
    return;
  }
  if (!view.take) {
    raise<UnsupportedError>("export_onnx",
                            "a view is read after what it shows was written in place, which ",
                            "cannot be said in ONNX; make a copy with clone()");
  }
  operand.name = view.take(name_of(OnnxValue(view.base)));
  operand.is_constant = false;
  ++operand.version;
  view.base_version = view.base->version;
}

std::string Builder::name_of(const OnnxValue& value) {
  Operand& operand = *value.operand();
  if (value.is_none()) return {};
  refresh(operand);
  if (operand.kind != Operand::Kind::kValue && operand.kind != Operand::Kind::kGrown)
    raise<UnsupportedError>("export_onnx", "an operator reads a list, a tuple or a dictionary as ",
                            "a whole, which is no tensor in ONNX; read its elements");
  if (!operand.name.empty()) return operand.name;
  if (!operand.is_constant)
    raise<UnsupportedError>("export_onnx", "a further result of an operator is read, which ONNX's ",
                            "operator for it does not give");
  const c10::IValue& constant = operand.examples.at(0);
  if (constant.isComplexDouble())
    return tensor(at::scalar_tensor(constant.toComplexDouble(), at::kComplexDouble));
  if (constant.isTensor()) return operand.name = tensor(constant.toTensor(), operand.path);
  if (constant.isInt()) return integer(constant.toInt());
  if (constant.isBool()) return tensor(at::scalar_tensor(constant.toBool(), at::kBool));
  if (constant.isDouble()) return number(constant.toDouble(), at::kDouble);
  raise<UnsupportedError>("export_onnx", "a value of type ", constant.tagKind(),
                          " cannot be a tensor of a model");
}

std::string Builder::list_of(const OnnxValue& value) {
  const Operand& operand = *value.operand();
  if (operand.kind == Operand::Kind::kValue) {
    if (operand.is_constant) return ints({value.to_int()});
    const c10::IValue& example = operand.examples.front();
    if (example.isTensor()) {
      const std::string name = cast(name_of(value), example.toTensor().scalar_type(), at::kLong);
      return example.toTensor().dim() == 1 ? name : op("Reshape", {name, ints({-1})});
    }
    return operand.name;
  }
  if (is_constant(value)) {
    std::vector<std::int64_t> values;
    for (const OnnxValue& element : operand.elements) values.push_back(element.to_int());
    return ints(values);
  }
  // Runs of constants are one constant.
  Names parts;
  std::vector<std::int64_t> run;
  const auto flush = [&] {
    if (!run.empty()) parts.push_back(ints(run));
    run.clear();
  };
  for (const OnnxValue& element : operand.elements) {
    if (element.is_constant()) {
      run.push_back(element.to_int());
      continue;
    }
    flush();
    parts.push_back(list_of(element));
  }
  flush();
  if (parts.size() == 1) return parts[0];
  return op("Concat", parts, {{"axis", std::int64_t{0}}});
}

std::string Builder::cast(const std::string& name, at::ScalarType from, at::ScalarType to) {
  return from == to || name.empty() ? name : op("Cast", {name}, {{"to", onnx_type(to)}});
}

std::shared_ptr<convert::MadeGraph> Builder::close_body(const Names& outputs,
                                                        std::vector<convert::MadeValue> inputs) {
  auto body = std::make_shared<convert::MadeGraph>();
  body->name = fresh("body");
  body->inputs = std::move(inputs);
  std::unordered_set<std::string> used(outputs.begin(), outputs.end());
  body->nodes = needed_nodes(std::move(scopes_.back().nodes), &used);
  scopes_.pop_back();
  for (const std::string& name : outputs) {
    convert::MadeValue value;
    value.name = name;
    value.element = convert::Element::kUndefined;
    body->outputs.push_back(std::move(value));
  }
  return body;
}

convert::MadeGraph Builder::finish(std::vector<convert::MadeValue> inputs,
                                   std::vector<convert::MadeValue> outputs, const Names& names) {
  convert::MadeGraph graph;
  graph.nodes = std::move(scopes_.front().nodes);
  std::unordered_set<std::string> own;
  for (const MadeNode& node : graph.nodes) own.insert(node.outputs.begin(), node.outputs.end());
  std::map<std::string, std::string> renamed;
  for (std::size_t i = 0; i < names.size(); ++i) {
    // Inputs, constants, and values that are an output already are handed on by a node.
    if (own.contains(names[i]) && renamed.emplace(names[i], outputs[i].name).second) continue;
    const auto first = renamed.find(names[i]);
    MadeNode node;
    node.op = "Identity";
    node.inputs = {first == renamed.end() ? names[i] : first->second};
    node.outputs = {outputs[i].name};
    graph.nodes.push_back(std::move(node));
  }
  rename_in(graph, renamed);
  graph.inputs = std::move(inputs);
  graph.outputs = std::move(outputs);
  std::unordered_set<std::string> used;
  for (const convert::MadeValue& output : graph.outputs) used.insert(output.name);
  graph.nodes = needed_nodes(std::move(graph.nodes), &used);
  for (convert::MadeTensor& tensor : initializers_) {
    if (used.contains(tensor.name)) graph.initializers.push_back(std::move(tensor));
  }
  return graph;
}

}  // namespace mezzo::deploy::detail
