// Plans as text, and the hash that says whether a plan belongs to a graph.
#include "convert/report/plan.h"

#include <algorithm>
#include <utility>

#include "convert/onnx/fields.h"
#include "convert/onnx/hash.h"
#include "convert/report/json.h"
#include "core/raise.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kFormat = "mezzo-plan-2";

std::string hexadecimal(std::uint64_t value) {
  std::string hex;
  for (int i = 60; i >= 0; i -= 4) hex += "0123456789abcdef"[value >> i & 15];
  return hex;
}

// None where the plan has no such key.
std::vector<std::string> texts_of(const Json& json, std::string_view key) {
  std::vector<std::string> texts;
  if (json.find(key) == nullptr) return texts;
  for (const Json& item : json.array(key)) {
    const auto* text = std::get_if<std::string>(&item.is);
    if (text == nullptr) raise<ConfigError>("plan", key, " is no list of texts");
    texts.push_back(*text);
  }
  return texts;
}

}  // namespace

std::string structure_of(const Graph& graph) {
  // Sums of hashes per node do not depend on the order of nodes in the file.
  std::uint64_t sum = 0;
  ScopeId scope = kNone;
  std::string key;
  for (const Node& node : graph.nodes) {
    if (std::exchange(scope, node.scope) != node.scope) key = graph.key_of(node.scope);
    Hash hash;
    hash.add(key);
    hash.add(node.domain);
    hash.add(node.op);
    hash.add(node.opset);
    for (const ValueId in : node.inputs)
      hash.add(in == kNone ? std::string_view() : graph.value(in).name);
    for (const ValueId out : node.outputs)
      hash.add(out == kNone ? std::string_view() : graph.value(out).name);
    sum += hash.value();
  }
  Hash all;
  all.add(static_cast<std::int64_t>(sum));
  for (const ValueId in : graph.scope(0).inputs) {
    all.add(graph.value(in).name);
    all.add(name_of(graph.value(in).type));
  }
  for (const ValueId out : graph.scope(0).outputs) all.add(graph.value(out).name);
  return hexadecimal(all.value());
}

void write_decisions(JsonWriter& json, const std::vector<Decision>& decisions) {
  json.objects(decisions, [&](const Decision& decision) {
    json.key("key").value(decision.key);
    json.key("node").value(decision.node);
    json.key("op").value(decision.op);
    json.key("variable").value(decision.variable);
    json.key("low").value(decision.low);
    json.key("rule").value(decision.rule);
    json.key("why").value(decision.why);
    if (!decision.otherwise.empty()) json.key("otherwise").value(decision.otherwise);
    if (!decision.pin.empty()) json.key("pin").value(decision.pin);
  });
}

std::string Plan::to_json() const {
  JsonWriter json;
  json.open_object();
  json.key("format").value(kFormat);
  json.key("target_dtype").value(target_dtype);
  json.key("cast_optional_params").value(cast_optional_params);
  json.key("weights_only").value(weights_only);
  if (clamp_weights) json.key("clamp_weights").value(clamp_weights);
  if (raise_epsilons) json.key("raise_epsilons").value(raise_epsilons);
  if (fold_batch_norm) json.key("fold_batch_norm").value(fold_batch_norm);
  json.key("io").value(io);
  json.key("io_of").open_object();
  for (const auto& [name, dtype] : io_of) json.key(name).value(dtype);
  json.close();
  json.key("opset").value(opset);
  json.key("structure").value(structure);
  if (!float_weights.empty()) json.key("float_weights").texts(float_weights);
  if (!custom_operators.empty()) json.key("custom_operators").texts(custom_operators);
  json.key("decisions");
  write_decisions(json, decisions);
  json.close();
  return json.text();
}

Plan Plan::from_json(std::string_view text) {
  const Json json = Json::parse(text);
  if (json.text("format") != kFormat) {
    raise<ConfigError>("plan", "format '", json.text("format"), "'; expected ", kFormat,
                       "; make the plan again");
  }
  Plan plan;
  plan.target_dtype = json.text("target_dtype");
  plan.cast_optional_params = json.flag("cast_optional_params");
  plan.weights_only = json.flag("weights_only");
  const auto is_set = [&](std::string_view key) {
    return json.find(key) != nullptr && json.flag(key);
  };
  plan.clamp_weights = is_set("clamp_weights");
  plan.raise_epsilons = is_set("raise_epsilons");
  plan.fold_batch_norm = is_set("fold_batch_norm");
  plan.io = json.text("io");
  for (const auto& entry : json.object("io_of")) {
    plan.io_of[entry.first] = json.find("io_of")->text(entry.first);
  }
  plan.opset = json.text("opset");
  plan.structure = json.text("structure");
  plan.float_weights = texts_of(json, "float_weights");
  std::ranges::sort(plan.float_weights);
  plan.custom_operators = texts_of(json, "custom_operators");
  for (const Json& item : json.array("decisions")) {
    Decision decision;
    decision.key = item.text("key");
    decision.node = item.text("node");
    decision.op = item.text("op");
    decision.variable = item.text("variable");
    decision.low = item.flag("low");
    decision.rule = item.text("rule");
    decision.why = item.text("why");
    if (item.find("otherwise") != nullptr) decision.otherwise = item.text("otherwise");
    if (item.find("pin") != nullptr) decision.pin = item.text("pin");
    plan.decisions.push_back(std::move(decision));
  }
  return plan;
}

}  // namespace mezzo::convert
