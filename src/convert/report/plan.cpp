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

Decision decision_in(const Members& item) {
  Decision decision;
  decision.key = item.text("key");
  decision.node = item.text("node");
  decision.op = item.text("op");
  decision.variable = item.text("variable");
  decision.low = item.flag("low");
  decision.rule = item.text("rule");
  decision.why = item.text("why");
  decision.otherwise = item.optional_text("otherwise");
  decision.pin = item.optional_text("pin");
  return decision;
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

Json to_json_list(const std::vector<Decision>& decisions) {
  return json_list(decisions, [](const Decision& decision) {
    Json json{{"key", decision.key}, {"node", decision.node},
              {"op", decision.op},   {"variable", decision.variable},
              {"low", decision.low}, {"rule", decision.rule},
              {"why", decision.why}};
    if (!decision.otherwise.empty()) json["otherwise"] = decision.otherwise;
    if (!decision.pin.empty()) json["pin"] = decision.pin;
    return json;
  });
}

std::string Plan::to_json() const {
  Json json{{"format", kFormat},
            {"target_dtype", target_dtype},
            {"cast_optional_params", cast_optional_params},
            {"weights_only", weights_only}};
  if (clamp_weights) json["clamp_weights"] = clamp_weights;
  if (raise_epsilons) json["raise_epsilons"] = raise_epsilons;
  if (fold_batch_norm) json["fold_batch_norm"] = fold_batch_norm;
  json["io"] = io;
  json["io_of"] = json_map(io_of);
  json["opset"] = opset;
  json["structure"] = structure;
  if (!float_weights.empty()) json["float_weights"] = float_weights;
  if (!custom_operators.empty()) json["custom_operators"] = custom_operators;
  json["decisions"] = to_json_list(decisions);
  return json_text(json);
}

Plan Plan::from_json(std::string_view text) {
  const ReadJson json = parse_json(text);
  const Members whole(json);
  if (whole.text("format") != kFormat) {
    raise<ConfigError>("plan", "format '", whole.text("format"), "'; expected ", kFormat,
                       "; make the plan again");
  }
  Plan plan;
  plan.target_dtype = whole.text("target_dtype");
  plan.cast_optional_params = whole.flag("cast_optional_params");
  plan.weights_only = whole.flag("weights_only");
  plan.clamp_weights = whole.optional_flag("clamp_weights");
  plan.raise_epsilons = whole.optional_flag("raise_epsilons");
  plan.fold_batch_norm = whole.optional_flag("fold_batch_norm");
  plan.io = whole.text("io");
  plan.io_of = whole.text_map("io_of");
  plan.opset = whole.text("opset");
  plan.structure = whole.text("structure");
  plan.float_weights = whole.optional_texts("float_weights");
  std::ranges::sort(plan.float_weights);
  plan.custom_operators = whole.optional_texts("custom_operators");
  for (const Members& item : whole.objects("decisions"))
    plan.decisions.push_back(decision_in(item));
  return plan;
}

}  // namespace mezzo::convert
