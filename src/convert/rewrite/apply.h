// Writes decisions into the model: casts, element types, converted constants, specialised
// functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convert/decide/decide.h"

namespace mezzo::convert {

/// The changes to the model.
struct Changes {
  std::vector<CastReport> casts;
  std::int64_t weights = 0, low_weights = 0, duplicated_weights = 0;
  std::int64_t flushed_values = 0, infinite_values = 0;
  std::vector<AdjustedConstant> adjusted;
  /// Values of the model that were given another name, with the one that they had.
  std::map<std::string, std::string, std::less<>> renamed;
};

/// How weights are stored.
enum class Storage : std::uint8_t {
  kRuntimeCast,      // float32, behind Casts
  kConverted,        // in the low type where every use is low
  kWeightsOnly,      // in the low type, computed with in float32
  kEmulated,         // all float32, but every low value is rounded where it is made: for judges
  kEmulatedWeights,  // the same for constants alone
};

/// Edits the document's messages in place. The graph and the decisions describe them as they were.
/// Deterministic: the same input gives the same names and order.
Changes apply(Document&, const Graph&, const Decisions&, Constants&, Element low, Storage);

}  // namespace mezzo::convert
