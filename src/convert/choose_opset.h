// Which opset a conversion works in.
#pragma once

#include <memory>

#include "convert/decide/decide.h"
#include "convert/decide/policy.h"
#include "convert/graph/constants.h"
#include "convert/prepare/prepare.h"

namespace mezzo::convert {

/// The opset that the options ask for: "keep" raises models below opset 7 alone, "auto" takes the
/// smallest opset among 13 to 22 in which most nodes go low, where that is more than now. Throws
/// ConfigError if the number asked for is below the model's opset. Adds its counts to
/// `measured`.
OpsetChoice choose_opset(const std::shared_ptr<ModelFile>&, const ConvertPolicy&,
                         MeasuredFacts& measured);

/// The gain of another opset.
struct OpsetGain {
  int opset = 0;         ///< 0: nothing
  std::size_t more = 0;  ///< type variables that would go low besides
};

/// The gain of "auto" if the model's opset, `graph`'s, was kept; nothing if no opset can
/// be tried. Counts what the policy alone decides: `unmeasured` must be without evidence. Tries few
/// opsets, and only those in which an operator gains a low form that it may use.
OpsetGain gain_of_raising(const std::shared_ptr<ModelFile>&, const ConvertPolicy&,
                          MeasuredFacts& measured, const Graph& graph, const Decisions& unmeasured);

}  // namespace mezzo::convert
