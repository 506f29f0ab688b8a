#include "deploy/onnx_walk.h"

#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <utility>

#include "deploy/files/script_file.h"
#include "deploy/onnx_complex.h"
#include "deploy/onnx_facts.h"

namespace mezzo::deploy::detail {
namespace {

namespace jit = torch::jit;
using Results = std::vector<std::vector<c10::IValue>>;

/// Sequences of other layouts than LibTorch believes reach no operator that looks at them.
void refuse_packed(const jit::Node& node, const std::vector<OnnxValue>& operands) {
  for (const OnnxValue& operand : operands) {
    if (operand.operand()->is_packed)
      raise<UnsupportedError>("export_onnx", node.kind().toQualString(), " reads a packed ",
                              "sequence, which is a padded one in ONNX; pad it first");
    if (operand.operand()->kind == Operand::Kind::kGrown)
      raise<UnsupportedError>("export_onnx", node.kind().toQualString(), " reads a list whose ",
                              "length follows from the inputs; stack it first");
  }
}

/// `contiguous` is nothing in ONNX, and examples go on as they lie: a view of them copies.
void lay_out_for_view(jit::Stack& stack) {
  const at::Tensor tensor = stack.at(0).toTensor();
  if (tensor.is_contiguous() || !stack.at(1).isIntList()) return;
  const at::DimVector sizes = at::infer_size_dv(stack.at(1).toIntVector(), tensor.numel());
  if (!at::detail::computeStride(tensor.sizes(), tensor.strides(), sizes))
    stack.at(0) = tensor.contiguous();
}

/// Does an operator write the value, or a view of it?
bool may_be_written(const jit::Value& value) {
  return std::ranges::any_of(value.uses(), [](const jit::Use& use) {
    const c10::FunctionSchema* const schema = use.user->maybeSchema();
    if (use.offset != 0 || schema == nullptr || schema->arguments().empty()) return false;
    if (writes(*schema)) return true;
    const bool shows = schema->arguments()[0].alias_info() != nullptr;
    return shows && std::ranges::any_of(use.user->outputs(),
                                        [](const jit::Value* out) { return may_be_written(*out); });
  });
}

bool follows_from_sizes(const OnnxValue& value) {
  if (is_constant(value) || value.operand()->is_size) return true;
  const auto& elements = value.operand()->elements;
  return value.operand()->kind == Operand::Kind::kList &&
         std::all_of(elements.begin(), elements.end(), follows_from_sizes);
}

bool all_equal(const std::vector<c10::IValue>& values) {
  return std::all_of(values.begin(), values.end(), [&](const c10::IValue& value) {
    return value.isScalar() && value.tagKind() == values[0].tagKind() && value == values[0];
  });
}

}  // namespace

const OnnxValue& Walker::value(const jit::Value* value) const {
  return values_.at(value);
}

void Walker::set(const jit::Value* value, OnnxValue operand) {
  values_.insert_or_assign(value, std::move(operand));
}

std::vector<OnnxValue> Walker::operands_of(const Node& node) const {
  std::vector<OnnxValue> operands;
  operands.reserve(node.inputs().size());
  for (const jit::Value* input : node.inputs()) {
    if (g_.writes_in_place) g_.refresh(*value(input).operand());
    operands.push_back(value(input));
  }
  return operands;
}

OnnxValue Walker::run(const jit::Graph& graph, std::vector<OnnxValue> inputs) {
  for (std::size_t i = 0; i < graph.inputs().size(); ++i)
    set(graph.inputs()[i], std::move(inputs[i]));
  block(*graph.block());
  return value(graph.outputs()[0]);
}

void Walker::block(const jit::Block& block) {
  for (const Node* each : block.nodes()) {
    try {
      node(*each);
    } catch (const UnsupportedError& error) {
      const std::string text = error.what();
      if (text.find("\n  at ") != std::string::npos) throw;
      throw UnsupportedError(text + "\n  at " + place_of(*each));
    }
  }
}

std::string Walker::place_of(const Node& node) const {
  std::string place = node.kind().toQualString();
  for (const jit::Value* input : node.inputs()) {
    const auto found = values_.find(input);
    if (found == values_.end() || found->second.operand()->path.empty()) continue;
    const std::string& path = found->second.operand()->path;
    const std::size_t dot = path.rfind('.');
    place += " in '" + (dot == std::string::npos ? path : path.substr(0, dot)) + "'";
    break;
  }
  if (place.find(" in '") == std::string::npos && !last_module_.empty())
    place += " after '" + last_module_ + "'";
  const auto source = node.sourceRange().file_line_col();
  if (source) {
    const auto& [file, line, column] = *source;
    place += ", " + file + ":" + std::to_string(line);
  }
  return place;
}

void Walker::node(const Node& node) {
  if (node.kind() == c10::prim::Constant) {
    const auto found = jit::toIValue(node.output());
    OnnxValue constant = constant_of(found ? *found : c10::IValue(), g_.variants());
    if (found && found->isTensor() && may_be_written(*node.output())) {  // each run, its own
      for (c10::IValue& example : constant.operand()->examples)
        example = example.toTensor().clone();
    }
    set(node.output(), std::move(constant));
  } else if (node.kind() == c10::prim::If) {
    branch(node);
  } else if (node.kind() == c10::prim::Loop) {
    loop(node);
  } else if (!objects(node) && !grown_lists(node) && !structure(node) && !lists(node) &&
             !dictionaries(node) && !packed_sequences(node)) {
    operation(node);
  }
}

jit::Stack Walker::evaluate_run(const Node& node, const std::vector<OnnxValue>& operands,
                                std::size_t k) const {
  const c10::FunctionSchema* const schema = node.maybeSchema();
  jit::Stack stack;
  for (const OnnxValue& operand : operands) stack.push_back(example_of(operand, k));
  if (schema != nullptr && schema->is_vararg())
    stack.emplace_back(static_cast<std::int64_t>(stack.size()));
  const jit::Stack given = is_imagined(k) ? stack : jit::Stack();
  if (node.kind() == c10::aten::view) lay_out_for_view(stack);
  jit::Operation run = node.getOperation();
  run(stack);
  jit::Stack results(stack.end() - static_cast<std::ptrdiff_t>(node.outputs().size()), stack.end());
  if (is_imagined(k) && counts_values(node) && !std::ranges::all_of(operands, is_constant))
    imagine_lengths(node, given, is_empty_run(k), &results);
  return results;
}

Results Walker::evaluate(const Node& node, const std::vector<OnnxValue>& operands) const {
  Results results(node.outputs().size());
  const auto taken = std::ranges::find(stays_out_, false);
  const auto first = static_cast<std::size_t>(taken - stays_out_.begin());
  std::vector<std::size_t> missing;
  for (std::size_t k = 0; k < g_.variants(); ++k) {
    jit::Stack own(results.size());
    try {
      own = evaluate_run(node, operands, k);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      // Such a run would not come here; it goes on with the values of one that does.
      const bool stays_out = k < stays_out_.size() && stays_out_[k] && first < stays_out_.size();
      if (!stays_out) fail(node, reason_of(error));
      missing.push_back(k);
    }
    for (std::size_t i = 0; i < results.size(); ++i) results[i].push_back(std::move(own[i]));
  }
  for (std::vector<c10::IValue>& each : results) {
    for (const std::size_t k : missing) each[k] = each[first];
  }
  return results;
}

void Walker::fail(const Node& node, const std::string& why) const {
  raise("export_onnx", "the module does not run on these inputs: ", why, "\n  at ", place_of(node));
}

void Walker::operation(const Node& node) {
  const c10::FunctionSchema* const schema = node.maybeSchema();
  const std::string kind = node.kind().toQualString();
  const std::vector<OnnxValue> operands = operands_of(node);
  if (kind == "prim::RaiseException")
    raise<UnsupportedError>("export_onnx", "the module throws an exception on these examples");
  if (only_says(kind)) return;
  // With gradients attention takes the way of plain operators, whose values are the same.
  if (kind == "aten::is_grad_enabled")
    return set(node.output(), constant_of(c10::IValue(true), g_.variants()));
  if (schema == nullptr) raise<UnsupportedError>("export_onnx", kind, " cannot be said in ONNX");
  const bool translated = options_.translate.contains(kind);
  if (!translated && identities().contains(kind)) {
    const OnnxValue& from = operands[0];
    if (is_view_free(kind) && g_.writes_in_place && from.operand()->kind == Operand::Kind::kValue) {
      auto copy = std::make_shared<Operand>();
      for (const c10::IValue& example : from.operand()->examples)
        copy->examples.push_back(example.isTensor() ? example.toTensor().clone() : example);
      copy->is_constant = from.operand()->is_constant;
      copy->is_packed = from.operand()->is_packed;
      if (!copy->is_constant) copy->name = g_.name_of(from);
      set(node.output(), OnnxValue(std::move(copy)));
    } else {
      set(node.output(), from);
    }
    return;
  }
  const bool constant = std::all_of(operands.begin(), operands.end(),
                                    [](const OnnxValue& one) { return is_constant(one); });
  if (writes(*schema) && !constant) {
    // The values before the write: constants are stored as they are now.
    for (const OnnxValue& operand : operands) {
      const auto& examples = operand.operand()->examples;
      if (!examples.empty() && examples[0].isTensor()) g_.name_of(operand);
    }
  }
  refuse_packed(node, operands);
  Results results = evaluate(node, operands);
  const bool random = node.isNondeterministic();
  if ((constant && !random) || (static_facts().contains(kind) && !translated)) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      OnnxValue result = constant_of(results[i][0], g_.variants());
      if (results[i].size() > 1 && result.operand()->kind == Operand::Kind::kValue)
        result.operand()->examples = results[i];
      if (kind == "aten::t" || kind == "aten::transpose")
        result.operand()->path =
            operands[0].operand()->path.empty() ? "" : operands[0].operand()->path + "_t";
      if (writes(*schema) && i == 0) {
        result = operands[0];
        result.operand()->note_written_constant();
      }
      if (g_.writes_in_place && !writes(*schema)) note_view(node, operands, result);
      set(node.outputs()[i], std::move(result));
    }
    return;
  }
  say(node, operands, std::move(results));
}

OnnxValue Walker::list_of_sizes(const Node& node, const std::vector<OnnxValue>& operands,
                                const std::vector<c10::IValue>& examples) {
  const std::size_t count = examples[0].toIntVector().size();
  const std::string tensor = g_.name_of(operands[0]);
  auto list = std::make_shared<Operand>();
  list->kind = Operand::Kind::kList;
  list->type = node.output()->type();
  for (std::size_t d = 0; d < count; ++d) {
    std::vector<c10::IValue> seen;
    seen.reserve(examples.size());
    for (const c10::IValue& each : examples) seen.emplace_back(each.toIntVector()[d]);
    if (all_equal(seen)) {
      list->elements.push_back(constant_of(seen[0], g_.variants()));
      continue;
    }
    const Call call(g_, node.schema(), operands, {});
    const auto index = static_cast<std::int64_t>(d);
    OnnxValue element = made_of(call.sizes(tensor, index, index + 1), std::move(seen));
    element.operand()->is_size = true;
    list->elements.push_back(std::move(element));
  }
  return OnnxValue(std::move(list));
}

std::vector<OnnxValue> Walker::by_caller(const Node& node, const OnnxTranslation& translation,
                                         const std::vector<OnnxValue>& operands,
                                         const Results& results) {
  const c10::FunctionSchema& schema = node.schema();
  const std::string kind = node.kind().toQualString();
  std::map<std::string, OnnxValue, std::less<>> by_name;
  for (std::size_t i = 0; i < operands.size(); ++i)
    by_name.emplace(schema.arguments()[i].name(), operands[i]);
  OnnxGraph graph(g_);
  std::vector<OnnxValue> made = translation(graph, OnnxCall(kind, std::move(by_name)));
  if (made.size() != results.size())
    raise<ConfigError>("export_onnx", "options.translate[\"", kind, "\"] gave ", made.size(),
                       " values, and the operator has ", results.size());
  for (std::size_t i = 0; i < made.size(); ++i) made[i] = made_of(g_.name_of(made[i]), results[i]);
  return made;
}

std::vector<OnnxValue> Walker::by_row(const Node& node, const std::vector<OnnxValue>& operands,
                                      const Results& results) {
  const c10::FunctionSchema& schema = node.schema();
  const bool complex =
      std::ranges::any_of(operands, [](const auto& one) { return is_complex(one); }) ||
      std::ranges::any_of(results, [](const auto& one) { return is_complex(one.at(0)); });
  const Row* const row = complex ? find_complex_row(row_name(schema)) : find_row(row_name(schema));
  if (row == nullptr) {
    const std::string why(why_not_in_onnx(row_name(schema)));
    raise<UnsupportedError>("export_onnx", "the operator ", schema.operator_name(),
                            " cannot be said in ONNX by this version",
                            why.empty() ? "" : " (" + why + ")", "; say how with ",
                            "options.translate[\"", node.kind().toQualString(),
                            "\"], or compute it from others");
  }
  if (row->opset > g_.opset()) {
    raise<UnsupportedError>("export_onnx", "the operator ", schema.operator_name(), " needs opset ",
                            row->opset, ", and ", g_.opset(), " was asked for; set options.opset");
  }
  const Names names = row->say(Call(g_, schema, operands, results));
  std::vector<OnnxValue> made;
  if (results.size() == 1 && results[0][0].isTensorList()) {
    auto list = std::make_shared<Operand>();
    list->kind = Operand::Kind::kList;
    list->type = c10::ListType::ofTensors();
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::vector<c10::IValue> examples;
      for (const c10::IValue& each : results[0]) examples.emplace_back(each.toTensorVector().at(i));
      list->elements.push_back(made_of(names[i], std::move(examples)));
    }
    made.emplace_back(std::move(list));
    return made;
  }
  for (std::size_t i = 0; i < results.size(); ++i)
    made.push_back(made_of(i < names.size() ? names[i] : std::string(), results[i]));
  return made;
}

void Walker::say(const Node& node, const std::vector<OnnxValue>& operands, Results results) {
  const c10::FunctionSchema& schema = node.schema();
  const std::string kind = node.kind().toQualString();
  // A size that is the same in all runs is a number.
  const bool from_sizes = kind == "aten::size" || kind == "aten::len" || kind == "aten::numel" ||
                          std::all_of(operands.begin(), operands.end(), follows_from_sizes);
  if (from_sizes && results.size() == 1) {
    if (all_equal(results[0])) return set(node.output(), constant_of(results[0][0], g_.variants()));
    if (results[0][0].isIntList())
      return set(node.output(), list_of_sizes(node, operands, results[0]));
  }
  const auto own = options_.translate.find(kind);
  std::vector<OnnxValue> made = own != options_.translate.end()
                                    ? by_caller(node, own->second, operands, results)
                                    : by_row(node, operands, results);
  if (writes(schema)) {
    write(operands[0], made[0].operand()->name);
    made[0] = operands[0];
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (from_sizes && results[i][0].isScalar()) made[i].operand()->is_size = true;
    if (g_.writes_in_place && !writes(schema)) note_view(node, operands, made[i]);
    set(node.outputs()[i], made[i]);
  }
}

void Walker::note_view(const Node& node, const std::vector<OnnxValue>& operands,
                       const OnnxValue& result) {
  const c10::FunctionSchema& schema = node.schema();
  if (schema.arguments().empty() || schema.arguments()[0].alias_info() == nullptr) return;
  if (operands[0].operand()->kind != Operand::Kind::kValue) return;
  const auto note = [&](const OnnxValue& one, std::size_t index) {
    const auto& examples = one.operand()->examples;
    if (examples.empty() || !examples[0].isTensor() ||
        !operands[0].operand()->examples[0].isTensor())
      return;
    if (!examples[0].toTensor().is_alias_of(operands[0].operand()->examples[0].toTensor())) return;
    auto view = std::make_unique<View>();
    view->base = operands[0].operand();
    view->base_version = view->base->version;
    if (node.outputs().size() == 1 && result.operand()->kind == Operand::Kind::kValue) {
      Results results(1);
      results[0] = examples;
      describe_view(Call(g_, schema, operands, std::move(results)), view.get());
    }
    static_cast<void>(index);
    one.operand()->view = std::move(view);
  };
  if (result.operand()->kind == Operand::Kind::kValue) return note(result, 0);
  for (std::size_t i = 0; i < result.operand()->elements.size(); ++i)
    note(result.operand()->elements[i], i);
}

}  // namespace mezzo::deploy::detail
