#include "report/diagnosis_watched.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "report/text.h"
#include "report/watched.h"

namespace mezzo::insight {
namespace {

using report::Run;
using report::StepWatched;
using report::Watched;

constexpr std::int64_t kLeastSteps = 2;  // one step may be an exception
constexpr double kLostShare = 0.5;       // of the values that are not zero

/// A parameter over the watched steps that were taken.
struct GradientHistory {
  std::string parameter;
  std::string type;
  std::int64_t steps = 0;
  std::int64_t silent = 0;  // steps without any value but zero
  std::int64_t below = 0;   // steps with most values below the normal numbers
  double subnormals = 0;    // largest share of the values that are not zero
  double largest = 0;
};

std::vector<GradientHistory> histories_of(const Run& run) {
  std::vector<GradientHistory> all;
  std::map<std::string, std::size_t> places;
  for (const StepWatched& step : run.watched) {
    if (step.skipped) continue;
    for (const Watched& row : step.rows) {
      if (row.parameter.empty()) continue;
      const auto [place, is_new] = places.try_emplace(row.parameter, all.size());
      if (is_new) all.push_back({.parameter = row.parameter, .type = row.gradients.type});
      GradientHistory& history = all[place->second];
      const report::Magnitudes& m = row.gradients;
      ++history.steps;
      history.largest = std::max(history.largest, m.largest);
      if (m.largest == 0 && m.nans == 0) {
        ++history.silent;
        continue;
      }
      const double share = m.zeros < 1 ? m.subnormals / (1 - m.zeros) : 0;
      history.subnormals = std::max(history.subnormals, share);
      if (share >= kLostShare) ++history.below;
    }
  }
  std::erase_if(all, [](const GradientHistory& h) { return h.steps < kLeastSteps; });
  return all;
}

bool is_silent(const GradientHistory& history) {
  return history.silent == history.steps;
}

/// The same parameter in the float run; null if that was not watched.
const GradientHistory* in_float_run(const std::vector<GradientHistory>& all,
                                    const std::string& parameter) {
  const auto found = std::ranges::find(all, parameter, &GradientHistory::parameter);
  return found == all.end() ? nullptr : &*found;
}

std::vector<GradientHistory> float_histories(const Run& run, const Run* in_float) {
  return in_float == nullptr || in_float == &run ? std::vector<GradientHistory>()
                                                 : histories_of(*in_float);
}

std::string named(const std::vector<std::string>& parts) {
  constexpr std::size_t kMost = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kMost); ++i)
    text += (i == 0 ? "" : "; ") + parts[i];
  if (parts.size() > kMost)
    text += "; and " + std::to_string(parts.size() - kMost) + " more parameters";
  return text;
}

std::string steps_text(const Run& run) {
  return "in watched steps " + std::to_string(run.watched.front().step) + " to " +
         std::to_string(run.watched.back().step);
}

}  // namespace

std::optional<Finding> vanishing(const Run& run, const Run* in_float) {
  const std::vector<GradientHistory> others = float_histories(run, in_float);
  std::vector<std::string> parts;
  std::string type;
  for (const GradientHistory& history : histories_of(run)) {
    const GradientHistory* other = in_float_run(others, history.parameter);
    std::string part;
    if (is_silent(history)) {
      if (other == nullptr || is_silent(*other)) continue;
      part = "all gradients of '" + history.parameter + "' are zero, and in float (" +
             in_float->name + ") they reach " + report::short_number(other->largest);
    } else if (history.below * 2 >= history.steps) {
      part = "of the gradients of '" + history.parameter + "' that are not zero up to " +
             report::percent(history.subnormals) + " lie below the normal numbers of " +
             history.type;
    } else {
      continue;
    }
    parts.push_back(part);
    type = history.type;
  }
  if (parts.empty()) return std::nullopt;
  const std::string scale = report::scale_text(run.watched.back().scale);
  return Finding{
      .severity = "warning",
      .kind = "vanishing",
      .evidence = steps_text(run) + ", at a loss scale of " + scale + ": " + named(parts),
      .advice = type == "float16"
                    ? "Raise the scale: loss_scale = \"dynamic\", or a larger number. Where larger "
                      "gradients overflow already, keep these modules in float, or train in "
                      "bfloat16 (O4, O5), whose range is that of float."
                    : type +
                          " has the range of float, so no scale helps: the network itself lets "
                          "the gradients vanish. Look at its initialization, its activations "
                          "and missing normalisation or shortcuts."};
}

std::optional<Finding> dead(const Run& run, const Run* in_float) {
  const std::vector<GradientHistory> others = float_histories(run, in_float);
  std::vector<std::string> parts;
  for (const GradientHistory& history : histories_of(run)) {
    if (!is_silent(history)) continue;
    const GradientHistory* other = in_float_run(others, history.parameter);
    if (other == nullptr || is_silent(*other)) parts.push_back("'" + history.parameter + "'");
  }
  if (parts.empty()) return std::nullopt;
  return Finding{.severity = "warning",
                 .kind = "dead",
                 .evidence = steps_text(run) + " no gradient but zero reached " + named(parts),
                 .advice =
                     "These parameters do not learn: look for a forward pass that does not "
                     "use them, a detach() or argmax before them, or units that are never "
                     "active. Freeze them if that is meant."};
}

std::optional<Finding> skip_causes(const Run& run) {
  const report::SkipClusters clusters = report::clusters_of(run);
  if (clusters.all == 0) return std::nullopt;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < clusters.summaries.size(); ++i)
    parts.push_back(report::cluster_text(clusters, i));
  std::string evidence;
  constexpr std::size_t kMost = 3;
  for (std::size_t i = 0; i < std::min(parts.size(), kMost); ++i)
    evidence += (i == 0 ? "" : "; ") + parts[i];
  std::string advice =
      "insight::explain_overflow after such a step says on which values, and tries "
      "what helps.";
  for (const report::SkipExplained& skip : run.explained) {
    if (skip.summary != clusters.summaries.front().first || skip.advice.empty()) continue;
    advice = skip.advice.front();
    break;
  }
  return Finding{
      .severity = "info", .kind = "skips", .evidence = evidence, .advice = std::move(advice)};
}

}  // namespace mezzo::insight
