// Diagnoses of mixed precision from a run's log. Nothing here needs LibTorch.
#pragma once

#include <string>
#include <vector>

#include "mezzo/report.h"

namespace mezzo::insight {

/// Something that a person should know, with a way out.
struct Finding {
  std::string severity = {};  ///< "info", "warning" or "error"
  std::string kind = {};      ///< "stuck", "thrashing", ...: see diagnose()
  std::string where = {};     ///< the run
  std::string evidence = {};  ///< the steps and figures that show it
  std::string advice = {};    ///< what to change
  bool operator==(const Finding&) const = default;
};

/// Reads the events of a training log, worst finding first, then in the order of the runs. Kinds:
/// - "diverged": the loss is not finite and stays so; the evidence says whether a float run of the
///   report ("O0") diverged too, so that no precision helps;
/// - "stuck": steps are skipped although the scale is at its floor;
/// - "batch": the same batch of every epoch is skipped (needs an event a step);
/// - "thrashing": the scale grows and falls in turns, and each turn costs a step;
/// - "high_scale": the scale began far above what the gradients allow, and steps were lost on the
///   way down;
/// - "vanishing": gradients lie below the numbers of their type in half of the watched steps or
///   more, or are zero if those of the float run are not; without a float run, if a small scale and
///   the other parameters' gradients show that they fell below float16 (needs watch());
/// - "dead": no gradient but zero reaches a parameter in any watched step (needs watch());
/// - "skips": the explanations of skipped steps, the most frequent first (needs events
///   report::SkipExplained, or the messages of Options::explain_skips);
/// - "rank": overflows come from some ranks alone;
/// - "slow": a run takes longer than the float run of the report.
/// Steps count from 1, as events do. Empty if nothing is found.
MEZZO_API std::vector<Finding> diagnose(const report::Report& report);

/// Findings for a terminal: a paragraph each, or a sentence that there are none.
MEZZO_API std::string to_text(const std::vector<Finding>& findings);

/// Findings as a JSON array of objects with the fields of Finding.
MEZZO_API std::string to_json(const std::vector<Finding>& findings);

}  // namespace mezzo::insight
