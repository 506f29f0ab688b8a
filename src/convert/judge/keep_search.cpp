#include "convert/judge/keep_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "convert/onnx/hash.h"

namespace mezzo::convert {

std::vector<std::string> candidates_of(const Graph& graph, const ConvertPolicy& policy,
                                       const Decisions& decisions) {
  std::vector<std::string> candidates;
  if (!policy.options().weights_only) {
    // Whoever reads a table that is stored low reads rounded numbers, too.
    std::set<std::string> readers;
    for (const ValueId table : decisions.low_tables) {
      for (const Use& use : graph.value(table).uses) {
        if (use.node != kNone) readers.insert(graph.key_of(graph.node(use.node)));
      }
    }
    for (const Decision& decision : decisions.list) {
      const bool is_rounded = decision.low || readers.contains(decision.key);
      if (is_rounded && (candidates.empty() || candidates.back() != decision.key))
        candidates.push_back(decision.key);
    }
    return candidates;
  }
  const auto is_weight = [&](ValueId in) {
    return in != kNone && decisions.map.is_constant[static_cast<std::size_t>(in)];
  };
  for (const Node& node : graph.nodes) {
    const std::string key = graph.key_of(node);
    if (std::ranges::any_of(node.inputs, is_weight) &&
        !std::ranges::binary_search(decisions.float_weights, key))
      candidates.push_back(key);
  }
  return candidates;
}

RankedNodes ranked_by(const std::vector<LocalError>& errors,
                      const std::vector<std::string>& candidates) {
  constexpr double kStep = 3;  // dB: twice the noise
  struct Ranked {
    double decibels;
    std::size_t place;
  };
  std::map<std::string_view, const LocalError*> of_key;
  for (const LocalError& error : errors) of_key[error.key] = &error;
  RankedNodes ranked;
  std::vector<Ranked> order;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto found = of_key.find(candidates[i]);
    const bool is_known = found != of_key.end();
    const bool is_suspect = is_known && !found->second->finite;
    ranked.suspects += is_suspect ? 1 : 0;
    const double decibels = is_known ? std::floor(found->second->sqnr_db / kStep) : HUGE_VAL;
    order.push_back({is_suspect ? -HUGE_VAL : decibels, i});
  }
  std::ranges::sort(order, [](const Ranked& a, const Ranked& b) {
    if (a.decibels != b.decibels) return a.decibels < b.decibels;
    return a.decibels == HUGE_VAL ? a.place < b.place : a.place > b.place;
  });
  for (const Ranked& each : order) ranked.nodes.push_back(candidates[each.place]);
  return ranked;
}

std::uint64_t purpose_of_search(std::string_view judge, const std::filesystem::path& original,
                                const ConvertPolicy& policy, const Decisions& decisions) {
  const Options& options = policy.options();
  Hash hash;
  hash.add(judge);
  std::vector<std::filesystem::path> files = options.calibration;
  files.push_back(original);
  for (const std::filesystem::path& file : files) {
    hash.add(file.string());
    hash.add(static_cast<std::int64_t>(std::filesystem::file_size(file)));
    hash.add(std::filesystem::last_write_time(file).time_since_epoch().count());
  }
  for (const std::string& text : {options.target_dtype, options.profile, options.opset, options.io})
    hash.add(text);
  for (const auto& [name, dtype] : options.io_of) {
    hash.add(name);
    hash.add(dtype);
  }
  for (const std::string& text : policy.custom_texts()) hash.add(text);
  for (const bool choice : {options.weights_only, options.cast_optional_params,
                            options.clamp_weights, options.raise_epsilons, options.fold_batch_norm})
    hash.add(std::int64_t{choice});
  // Lists, names, ranges and what the caller chooses have come to these.
  for (const std::string& key : decisions.float_weights) hash.add(key);
  for (const Decision& decision : decisions.list) {
    for (const std::string& text :
         {decision.key, decision.variable, decision.rule, decision.why, decision.otherwise})
      hash.add(text);
    hash.add(std::int64_t{decision.low});
  }
  return hash.value();
}

}  // namespace mezzo::convert
