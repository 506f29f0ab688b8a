#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "mezzo/insight_diagnosis.h"
#include "report/diagnosis_steps.h"
#include "report/diagnosis_watched.h"
#include "report/event_json.h"
#include "report/text.h"

namespace mezzo::insight {
namespace {

using report::Run;
using report::Skips;
using report::StepTaken;

std::string steps_text(std::int64_t first, std::int64_t last) {
  return first == last ? "step " + std::to_string(first)
                       : "steps " + std::to_string(first) + " to " + std::to_string(last);
}

std::string skipped_text(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " step was skipped" : " steps were skipped");
}

// Where the loss stopped being finite for good.
const StepTaken* divergence(const Run& run) {
  const StepTaken* first = nullptr;
  for (const StepTaken& step : run.steps) {
    if (std::isfinite(step.loss)) {
      first = nullptr;
    } else if (first == nullptr) {
      first = &step;
    }
  }
  return first;
}

std::optional<Finding> diverged(const Run& run, const Run* in_float) {
  const StepTaken* begin = divergence(run);
  if (begin == nullptr) return std::nullopt;
  Finding finding{.severity = "error", .kind = "diverged"};
  finding.evidence = "the loss is not finite from step " + std::to_string(begin->step) + " on";
  const StepTaken* float_begin = in_float == nullptr ? nullptr : divergence(*in_float);
  if (in_float == &run || float_begin != nullptr) {
    if (in_float != &run) {
      finding.evidence += "; the float run '" + in_float->name + "' diverged at step " +
                          std::to_string(float_begin->step) + ", too";
    }
    finding.advice =
        "Float fails as well, so no precision and no scale helps: lower the learning rate, clip "
        "the gradients (of master_params()), and check data and labels for values that are not "
        "finite.";
    return finding;
  }
  if (in_float != nullptr) finding.evidence += "; the float run '" + in_float->name + "' did not";
  finding.advice = in_float != nullptr
                       ? "Float trains, so precision is to blame: keep more in float, or train in "
                         "bfloat16 (O4, O5), whose range is that of float."
                       : "Train a few steps at O0: if the loss fails there as well, lower the "
                         "learning rate and check the data; if not, keep more in float or train in "
                         "bfloat16 (O4, O5).";
  return finding;
}

// Skips that the scale did not answer: it stood where it was, as it does at its floor. A scale that
// rises between two events and falls again is not at its floor.
std::optional<Finding> stuck(const Run& run) {
  if (run.steps.empty()) return std::nullopt;
  const double lowest = std::ranges::min(run.steps, {}, &StepTaken::scale).scale;
  std::int64_t count = 0, first = 0, last = 0, longest = 0, begin = 0, end = 0;
  for (const Skips& skips : skips_of(run)) {
    const bool is_at_floor = skips.scale_before == lowest && skips.scale_after == lowest &&
                             skips.count * 2 > skips.last_step - skips.first_step;
    if (!is_at_floor) continue;
    if (count == 0 || skips.first_step != last + 1) {
      count = 0;
      first = skips.first_step;
    }
    count += skips.count;
    last = skips.last_step;
    if (count > longest) {
      longest = count;
      begin = first;
      end = last;
    }
  }
  if (longest < 3) return std::nullopt;
  return Finding{
      .severity = "error",
      .kind = "stuck",
      .evidence = skipped_text(longest) + " in " + steps_text(begin, end) +
                  " although the scale was already at its lowest, " + report::scale_text(lowest),
      .advice =
          "A lower scale cannot help: the forward pass itself gives infinity or NaN, or the "
          "weights do. Find the operator that does it and keep it in float, or train in "
          "bfloat16 (O4, O5)."};
}

std::optional<Finding> thrashing(const Run& run) {
  constexpr int kLeastTurns = 4;
  constexpr double kLeastShare = 0.02;  // of steps; the default interval loses one of 2000
  const report::Turns turns = turns_of(run);
  const std::int64_t steps = turns.last_step - turns.first_step + 1;
  const double share = static_cast<double>(turns.skipped) / static_cast<double>(steps);
  if (turns.count < kLeastTurns || share < kLeastShare) return std::nullopt;
  return Finding{.severity = "warning",
                 .kind = "thrashing",
                 .evidence = "the scale turned " + std::to_string(turns.count) + " times in " +
                             steps_text(turns.first_step, turns.last_step) + ", and " +
                             skipped_text(turns.skipped) + " (" + report::percent(share) + ")",
                 .advice =
                     "Every growth is lost again: raise growth_interval (2000 steps by "
                     "default), or set max_loss_scale to the scale that passes."};
}

// The descent at a run's beginning, before any step but skipped ones lowered the scale.
std::optional<Finding> high_scale(const Run& run) {
  constexpr std::int64_t kMany = 6;  // 65536 falls to 1024
  std::int64_t skipped = 0, last = 0;
  double settled = 0;
  double before = 0;
  for (const StepTaken& step : run.steps) {
    if (before != 0 && (step.scale >= before || step.skipped_steps == skipped)) break;
    if (step.skipped_steps == 0) break;
    skipped = step.skipped_steps;
    settled = before = step.scale;
    last = step.step;
  }
  if (skipped < kMany || skipped * 2 < last) return std::nullopt;
  return Finding{
      .severity = "warning",
      .kind = "high_scale",
      .evidence = skipped_text(skipped) + " in steps 1 to " + std::to_string(last) +
                  " until the scale had come down to " + report::scale_text(settled),
      .advice = "Begin where it settled: init_loss_scale = " + report::scale_text(settled) + "."};
}

// The position of each skip in its epoch, where every step has an event.
std::optional<Finding> same_batch(const Run& run) {
  std::map<std::int64_t, std::int64_t> first_of_epoch;
  for (const StepTaken& step : run.steps) first_of_epoch.try_emplace(step.epoch, step.step);
  std::map<std::int64_t, std::set<std::int64_t>> epochs_of_batch;
  for (const Skips& skips : skips_of(run)) {
    if (skips.first_step != skips.last_step) continue;
    epochs_of_batch[skips.last_step - first_of_epoch[skips.epoch]].insert(skips.epoch);
  }
  const std::size_t epochs = first_of_epoch.size();
  std::string batches;
  std::size_t count = 0;
  for (const auto& [batch, in] : epochs_of_batch) {
    if (in.size() < std::max<std::size_t>(2, epochs)) continue;
    batches += (count++ == 0 ? "" : ", ") + std::to_string(batch);
  }
  // Where most batches fail, none of them is to blame.
  if (count == 0 || count * 2 > run.steps.size() / epochs) return std::nullopt;
  return Finding{.severity = "warning",
                 .kind = "batch",
                 .evidence = (count == 1 ? "batch " : "batches ") + batches +
                             " (counted from 0) was skipped in each of " + std::to_string(epochs) +
                             " epochs",
                 .advice =
                     "Look at that data: a value or label that is not finite, or far larger "
                     "than the others. Order the data the same way to find it by its index."};
}

// Ranks after "on rank 3" or "on ranks 1, 2" in the messages of skipped steps.
std::string ranks_in(const std::string& message) {
  for (const std::string_view before : {" on ranks ", " on rank "}) {
    const std::size_t at = message.find(before);
    if (at == std::string::npos) continue;
    const std::size_t begin = at + before.size();
    const std::size_t end = message.find_first_not_of("0123456789, ", begin);
    std::string ranks = message.substr(begin, end == std::string::npos ? end : end - begin);
    ranks.erase(ranks.find_last_not_of(", ") + 1);
    return ranks;
  }
  return {};
}

std::optional<Finding> single_rank(const Run& run) {
  std::map<std::string, int> skips_of_ranks;
  int all = 0;
  for (const std::string& message : run.messages) {
    if (message.find("step skipped") == std::string::npos) continue;
    const std::string ranks = ranks_in(message);
    if (ranks.empty()) continue;
    ++skips_of_ranks[ranks];
    ++all;
  }
  if (all < 2) return std::nullopt;
  const auto most = std::ranges::max_element(skips_of_ranks, {}, [](auto& e) { return e.second; });
  if (most->second * 10 < all * 9) return std::nullopt;
  const bool is_one = most->first.find(',') == std::string::npos;
  return Finding{.severity = "warning",
                 .kind = "rank",
                 .evidence = std::to_string(most->second) + " of " + std::to_string(all) +
                             " skipped steps come from " + (is_one ? "rank " : "ranks ") +
                             most->first + " alone",
                 .advice = "The others have the same weights, so look at the data of " +
                           std::string(is_one ? "that rank" : "those ranks") +
                           ", and at the hardware if the data are sound."};
}

std::optional<Finding> slow(const Run& run, const Run* in_float) {
  constexpr double kSlower = 1.05;  // less is noise
  if (in_float == nullptr || &run == in_float || !run.ended || !in_float->ended) return {};
  const double mine = run.figures.seconds_per_step, theirs = in_float->figures.seconds_per_step;
  if (theirs <= 0 || mine < kSlower * theirs) return std::nullopt;
  Finding finding{.severity = "info", .kind = "slow"};
  finding.evidence = "a step takes " + report::milliseconds(mine) + ", in float (" +
                     in_float->name + ") " + report::milliseconds(theirs) +
                     "; casts per step: " + report::fixed(run.figures.weight_casts_per_step, 1) +
                     " of weights, " + report::fixed(run.figures.activation_casts_per_step, 1) +
                     " of other tensors";
  finding.advice =
      "`mezzo info` says whether this machine computes the low type itself or emulates it. Where "
      "it emulates, use float, or the low type that it has.";
  return finding;
}

void add_compute(const report::Machine& machine, Finding& finding) {
  for (const auto& [type, how] : machine.compute) finding.evidence += "; " + type + ": " + how;
}

int rank_of(const Finding& finding) {
  return finding.severity == "error" ? 0 : finding.severity == "warning" ? 1 : 2;
}

}  // namespace

std::vector<Finding> diagnose(const report::Report& all) {
  const auto named = std::ranges::find(all.runs, "O0", &Run::name);
  const Run* in_float = named == all.runs.end() ? nullptr : &*named;
  std::vector<Finding> findings;
  for (const Run& run : all.runs) {
    std::optional<Finding> late = slow(run, in_float);
    if (late) add_compute(all.machine, *late);
    for (std::optional<Finding> finding :
         std::array{diverged(run, in_float), stuck(run), same_batch(run), thrashing(run),
                    high_scale(run), single_rank(run), vanishing(run, in_float),
                    dead(run, in_float), skip_causes(run), std::move(late)}) {
      if (!finding) continue;
      finding->where = run.name;
      findings.push_back(std::move(*finding));
    }
  }
  std::ranges::stable_sort(findings, {}, rank_of);
  return findings;
}

std::string to_text(const std::vector<Finding>& findings) {
  if (findings.empty()) return "Nothing to report: no finding in any run.\n";
  std::string text;
  for (const Finding& f : findings) {
    text += (text.empty() ? "" : "\n") + f.severity + ": " + f.kind +
            (f.where.empty() ? "" : " in " + f.where) + "\n  " + f.evidence + "\n  " + f.advice +
            '\n';
  }
  return text;
}

std::string to_json(const std::vector<Finding>& findings) {
  report::Json all = report::Json::array();
  for (const Finding& f : findings) {
    all.push_back({{"severity", f.severity},
                   {"kind", f.kind},
                   {"where", f.where},
                   {"evidence", f.evidence},
                   {"advice", f.advice}});
  }
  return report::to_text(all, 2) + '\n';
}

}  // namespace mezzo::insight
