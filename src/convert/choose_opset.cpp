#include "convert/choose_opset.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "convert/concat.h"
#include "convert/decide.h"
#include "convert/opset.h"
#include "convert/schema.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

// Opsets at which operators gained a 16-bit type; beyond 22 few runtimes follow.
constexpr std::array kWorthTrying{13, 14, 15, 16, 17, 18, 20, 21, 22};
// ONNX Runtime promises nothing below, and Casts of opsets 1 to 5, which name their type in a text,
// are read by hardly anything.
constexpr int kOldest = 7;

struct Count {
  std::size_t low = 0;  // type variables that would go low
  bool is_all = false;  // no other is float32 because the opset has no low form of it
};

// Nothing where the opset cannot be reached.
std::optional<Count> low_count(const fs::path& model, const ConvertPolicy& policy,
                               MeasuredFacts& measured, int opset) {
  Document document(model);
  if (opset != 0 && !raise_opset(document, opset).empty()) return std::nullopt;
  const Graph graph(document, policy.custom_operators());
  Constants constants(graph, policy.low(), &measured);
  try {
    Count count{0, true};
    for (const Decision& decision : decide(graph, policy, constants).list) {
      count.low += decision.low ? 1 : 0;
      if (!decision.low && decision.rule == name_of(Level::kValidity)) count.is_all = false;
    }
    return count;
  } catch (const UnsupportedError&) {
    return std::nullopt;  // its inputs cannot have the low type in this opset
  }
}

// Weights need no operator but the Cast behind them.
int with_cast(const fs::path& model, Element low, int now) {
  if (has_cast_to(low, now)) return 0;
  for (const int opset : kWorthTrying) {
    Document document(model);
    if (opset > now && has_cast_to(low, opset) && raise_opset(document, opset).empty())
      return opset;
  }
  return 0;
}

int automatic(const fs::path& model, const ConvertPolicy& policy, MeasuredFacts& measured,
              int now) {
  if (policy.options().weights_only) return with_cast(model, policy.low(), now);
  int best = 0;
  std::optional<Count> most = low_count(model, policy, measured, 0);
  for (const int opset : kWorthTrying) {
    if (opset <= now) continue;
    if (most && most->is_all) break;
    const std::optional<Count> count = low_count(model, policy, measured, opset);
    if (!count || (most && count->low <= most->low)) continue;
    most = count;
    best = opset;
  }
  return best;
}

// What the model needs whatever is asked for.
OpsetChoice kept(const fs::path& model, int now) {
  if (now == 0 || now >= kOldest) return {};
  Document document(model);
  const std::string why = raise_opset(document, kOldest);
  if (why.empty()) return {kOldest, true, ""};
  return {0, false,
          concat({"the model's opset ", std::to_string(now),
                  " stays, since it cannot be raised to ", std::to_string(kOldest), ": ", why,
                  "; few runtimes load the Casts of so old an opset"})};
}

}  // namespace

OpsetChoice choose_opset(const fs::path& model, const ConvertPolicy& policy,
                         MeasuredFacts& measured) {
  const Options& options = policy.options();
  int now = 0;
  {
    Document document(model);
    now = static_cast<int>(Graph(document).scope(0).opset(""));
  }
  if (options.opset == "auto") {
    const int best = automatic(model, policy, measured, now);
    return best == 0 ? kept(model, now) : OpsetChoice{best};
  }
  if (options.opset == "keep") return kept(model, now);
  const int wanted = std::stoi(options.opset);
  if (wanted < now) {
    raise<ConfigError>("convert", "opset ", wanted, " is asked for, but '", model.string(),
                       "' has opset ", now, ", and opsets are not lowered; expected keep, auto or ",
                       now, " to ", newest_opset());
  }
  return {wanted == now ? 0 : wanted};
}

OpsetGain gain_of_raising(const fs::path& model, const ConvertPolicy& policy,
                          MeasuredFacts& measured, const Graph& graph, const Decisions& decisions) {
  std::set<int> tried;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const auto is_refused = [&](Slot slot) {
      const Pin* pin = decisions.map.slots.pin_of(slot);
      return pin != nullptr && pin->label == Label::kHigh && pin->level == Level::kValidity;
    };
    if (!is_decidable(node) || !node.domain.empty() ||
        std::ranges::none_of(decisions.map.variables[n], is_refused))
      continue;
    const int later = later_low_form(node.domain, node.op, node.opset, policy.low());
    const auto worth = std::ranges::lower_bound(kWorthTrying, later);
    if (later != 0 && worth != kWorthTrying.end()) tried.insert(*worth);
  }
  const auto now = static_cast<std::size_t>(
      std::ranges::count_if(decisions.list, [](const Decision& each) { return each.low; }));
  OpsetGain gain;
  for (const int opset : tried) {
    const std::optional<Count> count = low_count(model, policy, measured, opset);
    if (count && count->low > now + gain.more) gain = {opset, count->low - now};
  }
  return gain;
}

std::unique_ptr<Document> open_raised(const fs::path& model, int opset) {
  auto document = std::make_unique<Document>(model);
  if (opset == 0) return document;
  const std::string why = raise_opset(*document, opset);
  if (!why.empty())
    raise<UnsupportedError>("convert", "the model cannot be raised to opset ", opset, ": ", why);
  return document;
}

}  // namespace mezzo::convert
