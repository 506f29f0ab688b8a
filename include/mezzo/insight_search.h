// The smallest part of a network that must stay in float. Nothing here needs LibTorch.
//
//   auto set = mezzo::insight::smallest_float_set(modules, [&](const auto& kept_float) {
//     return error_of_training(kept_float) < 0.01;
//   });
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/export.h"

namespace mezzo::insight {

/// How smallest_float_set() searches.
struct SearchOptions {
  /// A file for the answers: a search that was interrupted, by a crash or by an exception of the
  /// judge, goes on where it stopped. Removed when the search is over; kept when `max_judgements`
  /// ended it. Empty: no file.
  std::filesystem::path journal = {};
  /// Says what the answers are good for (a model, a data set, a tolerance). Answers that the
  /// journal holds for another purpose, or for other candidates, are dropped.
  std::string purpose = {};
  /// How often the judge may be asked; unset: as often as it takes. At least 1.
  std::optional<int> max_judgements = {};
};

/// The result of smallest_float_set().
struct FloatSet {
  std::vector<std::string> names = {};  ///< what must stay in float, in the candidates' order
  int judgements = 0;     ///< how often the judge was asked; answers of the journal are free
  bool complete = false;  ///< is the set good, and none of its members can go?
};

/// Searches a small set of names (modules, operators) with which a result is good although all
/// others are cast to a low type. `good` judges a set, given in the candidates' order; it is never
/// asked twice about the same one, and its exceptions come out of here.
///
/// The set is good, and no single member can go (it is 1-minimal). Delta debugging after Zeller:
/// about 2 k log2(n) judgements where k of n candidates are needed. Deterministic: the same
/// candidates and answers give the same set and the same questions.
///
/// Where even all candidates do not help, the set is empty and not complete, after two judgements.
/// Where `max_judgements` ends the search, the set is the smallest that was found to be good so
/// far, and not complete. Throws ConfigError if a candidate is named twice, `good` is empty or
/// `max_judgements` is below 1, and Error if the journal cannot be written.
MEZZO_API FloatSet
smallest_float_set(const std::vector<std::string>& candidates,
                   std::function<bool(const std::vector<std::string>& kept_float)> good,
                   SearchOptions options = {});

}  // namespace mezzo::insight
