#include "convert/choose_opset.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "convert/decide/decide.h"
#include "convert/decide/pins/quantised.h"
#include "convert/onnx/concat.h"
#include "convert/prepare/fold_batch_norm.h"
#include "convert/prepare/opset.h"
#include "convert/standard/low_forms.h"
#include "convert/standard/schema.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

// Opsets at which operators gained a 16-bit type; beyond 22 few runtimes follow.
constexpr std::array kWorthTrying{13, 14, 15, 16, 17, 18, 20, 21, 22};
// ONNX Runtime promises nothing below, and Casts of opsets 1 to 5, which name their type in a text,
// are read by hardly anything.
constexpr int kOldest = 7;

// How many type variables of each node, by its key and operator, would go low, without anything
// measured.
struct Lows {
  using Key = std::pair<std::string, std::string>;
  std::map<Key, std::int64_t> low;
  bool is_all = false;  // no other is float32 because the opset has no low form of it

  Lows(const Graph& graph, const std::vector<Decision>& list) : is_all(true) {
    // Operators without a variable too, which a newer opset may bring.
    for (const Node& node : graph.nodes) {
      if (is_decidable(node)) low.try_emplace(Key{graph.key_of(node), node.op});
    }
    for (const Decision& each : list) {
      if (each.low) ++low[{each.key, each.op}];
      if (!each.low && each.rule == name_of(Level::kValidity)) is_all = false;
    }
  }

  // How many more go low than in `other`, of what both have: nodes that an adapter adds or rewrites
  // are no gain.
  std::int64_t more_than(const Lows& other) const {
    std::int64_t more = 0;
    for (const auto& [key, count] : low) {
      const auto found = other.low.find(key);
      if (found != other.low.end()) more += count - found->second;
    }
    return more;
  }
};

// Nothing if the opset cannot be reached, or nothing can be decided in it: its inputs
// cannot have the low type, or it reads a damaged tensor that the model's opset does not read.
std::optional<Lows> lows_in(const std::shared_ptr<ModelFile>& model, const ConvertPolicy& policy,
                            MeasuredFacts& measured, int opset) {
  try {
    Document document(model);
    if (opset != 0 && !raise_opset(document, opset).empty()) return std::nullopt;
    if (policy.options().fold_batch_norm) fold_batch_norms(document);
    const Graph graph(document, policy.custom_operators());
    Constants constants(graph, policy.low(), &measured);
    return Lows(graph, decide(graph, policy, constants).list);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Weights need no operator but the Cast behind them.
int with_cast(const std::shared_ptr<ModelFile>& model, Element low, int now) {
  if (has_cast_to(low, now)) return 0;
  for (const int opset : kWorthTrying) {
    Document document(model);
    if (opset > now && has_cast_to(low, opset) && raise_opset(document, opset).empty())
      return opset;
  }
  return 0;
}

int automatic(const std::shared_ptr<ModelFile>& model, const ConvertPolicy& policy,
              MeasuredFacts& measured, int now) {
  if (policy.options().weights_only) return with_cast(model, policy.low(), now);
  int best = 0;
  std::int64_t most = 0;
  std::optional<Lows> first = lows_in(model, policy, measured, 0);
  bool is_all = first && first->is_all;
  for (const int opset : kWorthTrying) {
    if (opset <= now) continue;
    if (is_all) break;
    std::optional<Lows> lows = lows_in(model, policy, measured, opset);
    if (!lows) continue;
    const std::int64_t more = first ? lows->more_than(*first) : 0;
    if (first && more <= most) continue;
    most = more;
    best = opset;
    is_all = lows->is_all;
    if (!first) first = std::move(lows);
  }
  return best;
}

// Where a model imports other domains alone, inputs and outputs that are asked for in the low type
// need an opset that has a Cast: the first one, which asks least of the file's version, or that of
// its functions, since both must mean the same by an operator.
int first_with_cast(const std::shared_ptr<ModelFile>& model, Element low) {
  Document document(model);
  const Graph graph(document);
  int opset = kOldest;
  for (const Scope& scope : graph.scopes)
    opset = std::max(opset, static_cast<int>(scope.opset("")));
  while (opset < newest_opset() && !has_cast_to(low, opset)) ++opset;
  return opset;
}

// The opset that the model needs whatever is asked for.
OpsetChoice kept(const std::shared_ptr<ModelFile>& model, int now, Element low) {
  if (now == 0) return {first_with_cast(model, low), true, ""};
  if (now >= kOldest) return {};
  Document document(model);
  const std::string why = raise_opset(document, kOldest);
  if (why.empty()) return {kOldest, true, ""};
  return {0, false,
          concat({"the model's opset ", std::to_string(now),
                  " stays, since it cannot be raised to ", std::to_string(kOldest), ": ", why,
                  "; few runtimes load the Casts of so old an opset"})};
}

// The first later opset in which that type variable of the operator takes the low type; 0: none.
int opset_with(const Node& node, std::string_view variable, Element low) {
  for (std::int64_t later = node.opset + 1; later <= newest_opset(); ++later) {
    const Schema* schema = find_schema(node.domain, node.op, later);
    if (schema == nullptr) continue;
    const bool takes = std::ranges::any_of(schema->variables, [&](const Variable& each) {
      return each.name == variable && !each.is_fixed && each.types().contains(tensor_of(low));
    });
    if (takes) return static_cast<int>(later);
  }
  return 0;
}

// At most two, since each try costs as much as deciding does: the one that allows most nodes the
// low type besides, and the newest.
std::set<int> opsets_to_try(const Graph& graph, const ConvertPolicy& policy, const SlotMap& map) {
  std::map<std::pair<const Schema*, std::size_t>, int> known;
  std::map<int, std::size_t> allowed;  // nodes, by the first opset that allows them the low type
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!is_decidable(node) || !node.domain.empty() || node.schema == nullptr) continue;
    int first = 0;
    for (std::size_t v = 0; v < map.variables[n].size(); ++v) {
      const Variable& variable = node.schema->variables[v];
      const Pin* pin = map.slots.pin_of(map.variables[n][v]);
      const bool is_refused =
          pin != nullptr && pin->label == Label::kHigh && pin->level == Level::kValidity;
      if (!is_refused || variable.types().contains(tensor_of(policy.low()))) continue;
      const auto [found, is_new] = known.try_emplace({node.schema, v});
      if (is_new) found->second = opset_with(node, variable.name, policy.low());
      if (first == 0) first = found->second;
    }
    const auto worth = std::ranges::lower_bound(kWorthTrying, first);
    if (first == 0 || worth == kWorthTrying.end()) continue;
    const bool may_go_low = policy.class_of(node.qualified_name()).cast != CastClass::kFloat;
    if (may_go_low && !is_quantised(graph, node)) ++allowed[*worth];
  }
  if (allowed.empty()) return {};
  const auto most = std::ranges::max_element(
      allowed, {}, [](const auto& opset_and_nodes) { return opset_and_nodes.second; });
  return {most->first, allowed.rbegin()->first};
}

}  // namespace

OpsetChoice choose_opset(const std::shared_ptr<ModelFile>& model, const ConvertPolicy& policy,
                         MeasuredFacts& measured) {
  const Options& options = policy.options();
  int now = 0;
  {
    Document document(model);
    now = static_cast<int>(Graph(document).scope(0).opset(""));
  }
  if (options.opset == "auto") {
    const int best = automatic(model, policy, measured, now);
    return best == 0 ? kept(model, now, policy.low()) : OpsetChoice{best};
  }
  if (options.opset == "keep") return kept(model, now, policy.low());
  const int wanted = std::stoi(options.opset);
  if (wanted < now) {
    raise<ConfigError>("convert", "opset ", wanted, " is asked for, but '", model->path().string(),
                       "' has opset ", now, ", and opsets are not lowered; expected keep, auto or ",
                       now, " to ", newest_opset());
  }
  return {wanted == now ? 0 : wanted};
}

OpsetGain gain_of_raising(const std::shared_ptr<ModelFile>& model, const ConvertPolicy& policy,
                          MeasuredFacts& measured, const Graph& graph,
                          const Decisions& unmeasured) {
  const std::set<int> tried = opsets_to_try(graph, policy, unmeasured.map);
  OpsetGain gain;
  if (tried.empty()) return gain;
  const Lows now(graph, unmeasured.list);
  for (const int opset : tried) {
    const std::optional<Lows> lows = lows_in(model, policy, measured, opset);
    const std::int64_t more = lows ? lows->more_than(now) : 0;
    if (more > static_cast<std::int64_t>(gain.more)) gain = {opset, static_cast<std::size_t>(more)};
  }
  return gain;
}

}  // namespace mezzo::convert
