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
  std::string module;
  std::string parameter;
  std::string type;
  std::int64_t steps = 0;
  std::int64_t silent = 0;   // steps without any value but zero
  std::int64_t arrived = 0;  // steps with a gradient
  std::int64_t below = 0;    // steps with most values below the normal numbers
  double lost = 0;           // largest share of the values below, of those that count
  bool counts_zeros = false;
  double largest = 0;
};

/// Do values go on below the least number of float16? Its zeros are lost ones then.
bool is_cut_off(const report::Magnitudes& m) {
  constexpr int kLeastExponent = -24;
  constexpr double kTouches = 0.01;
  return m.type == "float16" && m.first_exponent == kLeastExponent && !m.exponents.empty() &&
         static_cast<double>(m.exponents.front()) >= kTouches * static_cast<double>(m.count);
}

/// The share of a gradient that lies below the normal numbers, of the values that count.
double lost_share(const report::Magnitudes& m) {
  if (is_cut_off(m)) return m.zeros + m.subnormals;
  return m.zeros < 1 ? m.subnormals / (1 - m.zeros) : 0;
}

std::vector<GradientHistory> histories_of(const Run& run) {
  std::vector<GradientHistory> all;
  std::map<std::string, std::size_t> places;
  for (const StepWatched& step : run.watched) {
    if (step.skipped) continue;
    for (const Watched& row : step.rows) {
      if (row.parameter.empty()) continue;
      const auto [place, is_new] = places.try_emplace(row.parameter, all.size());
      if (is_new)
        all.push_back(
            {.module = row.module, .parameter = row.parameter, .type = row.gradients.type});
      GradientHistory& history = all[place->second];
      const report::Magnitudes& m = row.gradients;
      ++history.steps;
      history.arrived += static_cast<std::int64_t>(m.count > 0);
      history.largest = std::max(history.largest, m.largest);
      if (m.largest == 0 && m.nans == 0) {
        ++history.silent;
        continue;
      }
      const double share = lost_share(m);
      history.lost = std::max(history.lost, share);
      history.counts_zeros = history.counts_zeros || (is_cut_off(m) && m.zeros > 0);
      if (share >= kLostShare) ++history.below;
    }
  }
  std::erase_if(all, [](const GradientHistory& h) { return h.steps < kLeastSteps; });
  return all;
}

bool is_silent(const GradientHistory& history) {
  return history.silent == history.steps;
}

/// Do most values of most steps lie below the normal numbers? Steps of zeros count with them.
bool is_below(const GradientHistory& history) {
  const std::int64_t silent = history.below > 0 ? history.silent : 0;
  return (history.below + silent) * 2 >= history.steps && history.below > 0;
}

/// Did a comparison of this run with float find that the module's gradients are lost?
bool is_lost_in_comparison(const Run& run, const std::string& module) {
  return std::ranges::any_of(run.compared, [&](const report::PrecisionCompared& compared) {
    return std::ranges::any_of(compared.operators, [&](const report::ComparedOperator& each) {
      return each.backward && each.module == module && each.type == "float16" &&
             each.accumulated == 1;
    });
  });
}

/// Have the gradients of a parameter that are all zero vanished below float16, as far as the run
/// itself shows? They have if a larger scale is possible and others lie at the end of the type, or
/// none lies above it.
bool has_vanished(const GradientHistory& history, const std::vector<GradientHistory>& all,
                  const Run& run) {
  constexpr double kUsualScale = 65536;  // where a dynamic scale begins
  if (history.type != "float16" || history.arrived == 0) return false;
  if (run.watched.back().scale >= kUsualScale) return false;
  const bool others_are_below = std::ranges::any_of(all, is_below);
  const bool all_are_silent = std::ranges::all_of(
      all, [](const GradientHistory& h) { return h.type != "float16" || is_silent(h); });
  return others_are_below || all_are_silent || is_lost_in_comparison(run, history.module);
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
  const std::vector<GradientHistory> all = histories_of(run);
  std::vector<std::string> parts;
  std::string type;
  bool is_certain = true;
  for (const GradientHistory& history : all) {
    const GradientHistory* other = in_float_run(others, history.parameter);
    std::string part;
    if (is_silent(history)) {
      if (other != nullptr ? is_silent(*other) : !has_vanished(history, all, run)) continue;
      part = "all gradients of '" + history.parameter + "' are zero";
      if (other != nullptr) {
        part += ", and in float (" + in_float->name + ") they reach " +
                report::short_number(other->largest);
      }
      is_certain = is_certain && other != nullptr;
    } else if (is_below(history)) {
      part = "of the gradients of '" + history.parameter +
             (history.counts_zeros ? "' up to " : "' that are not zero up to ") +
             report::percent(history.lost) + (history.counts_zeros ? " are zero or lie" : " lie") +
             " below the normal numbers of " + history.type;
    } else {
      continue;
    }
    parts.push_back(part);
    type = history.type;
  }
  if (parts.empty()) return std::nullopt;
  const std::string scale = report::scale_text(run.watched.back().scale);
  std::string advice =
      type == "float16"
          ? "Raise the scale: loss_scale = \"dynamic\", or a larger number. Where larger "
            "gradients overflow already, keep these modules in float, or train in "
            "bfloat16 (O4, O5), whose range is that of float."
          : type +
                " has the range of float, so no scale helps: the network itself lets "
                "the gradients vanish. Look at its initialization, its activations "
                "and missing normalisation or shortcuts.";
  if (!is_certain) {
    advice +=
        " Gradients that stay zero then reach nothing: look for a detach() or a forward pass that "
        "does not use the parameter.";
  }
  return Finding{
      .severity = "warning",
      .kind = "vanishing",
      .evidence = steps_text(run) + ", at a loss scale of " + scale + ": " + named(parts),
      .advice = std::move(advice)};
}

std::optional<Finding> dead(const Run& run, const Run* in_float) {
  const std::vector<GradientHistory> others = float_histories(run, in_float);
  const std::vector<GradientHistory> all = histories_of(run);
  std::vector<std::string> parts;
  for (const GradientHistory& history : all) {
    if (!is_silent(history)) continue;
    const GradientHistory* other = in_float_run(others, history.parameter);
    if (other != nullptr ? is_silent(*other) : !has_vanished(history, all, run))
      parts.push_back("'" + history.parameter + "'");
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
