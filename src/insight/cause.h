// From the values of a failed operator to what kind of fault it was.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "insight/close_up.h"
#include "mezzo/insight_explain.h"

namespace mezzo::insight {

struct Diagnosis {
  Cause cause = Cause::kUnknown;
  std::string parameter = {};  // where weights are to blame
};

/// The facts that tell weights that have exploded from weights that are large, asked for where
/// there are such.
struct WeightHistory {
  std::function<bool(const at::Tensor&)> has_grown;  // while it was trained
  std::function<bool()> fails_in_float;              // the step
};

/// `reads_fill`: an infinity came in that the program had passed as a fill value.
/// `weights`: what the inputs were computed from.
Diagnosis diagnose(const CloseUp& call, bool backward, bool reads_fill,
                   const std::vector<const NamedTensor*>& weights, const WeightHistory& history);

/// The change to the program if no precision helps, or besides it.
std::string remedy(Cause cause, const Operator* first, const std::string& parameter);

}  // namespace mezzo::insight
