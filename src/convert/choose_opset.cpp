#include "convert/choose_opset.h"

#include <algorithm>
#include <array>
#include <optional>

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

// How many type variables would go low in that opset; nothing where it cannot be reached.
std::optional<std::size_t> low_count(const fs::path& model, const ConvertPolicy& policy,
                                     int opset) {
  Document document(model);
  if (opset != 0 && !raise_opset(document, opset).empty()) return std::nullopt;
  const Graph graph(document);
  Constants constants(graph, policy.low());
  try {
    const Decisions decisions = decide(graph, policy, constants);
    return std::ranges::count_if(decisions.list,
                                 [](const Decision& decision) { return decision.low; });
  } catch (const UnsupportedError&) {
    return std::nullopt;  // its inputs cannot have the low type in this opset
  }
}

int automatic(const fs::path& model, const ConvertPolicy& policy, int now) {
  int best = 0;
  std::optional<std::size_t> most = low_count(model, policy, 0);
  for (const int opset : kWorthTrying) {
    if (opset <= now) continue;
    const std::optional<std::size_t> count = low_count(model, policy, opset);
    if (!count || (most && *count <= *most)) continue;
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

OpsetChoice choose_opset(const fs::path& model, const ConvertPolicy& policy) {
  const Options& options = policy.options();
  int now = 0;
  {
    Document document(model);
    now = static_cast<int>(Graph(document).scope(0).opset(""));
  }
  if (options.opset == "auto") {
    const int best = automatic(model, policy, now);
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

std::unique_ptr<Document> open_raised(const fs::path& model, int opset) {
  auto document = std::make_unique<Document>(model);
  if (opset == 0) return document;
  const std::string why = raise_opset(*document, opset);
  if (!why.empty())
    raise<UnsupportedError>("convert", "the model cannot be raised to opset ", opset, ": ", why);
  return document;
}

}  // namespace mezzo::convert
