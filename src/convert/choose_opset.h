// Which opset a conversion works in.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "convert/constants.h"
#include "convert/decide.h"
#include "convert/policy.h"

namespace mezzo::convert {

/// The opset to raise a model to.
struct OpsetChoice {
  int opset = 0;            ///< 0: as it is
  bool for_age = false;     ///< raised only since hardly any runtime loads Casts of its own opset
  std::string cannot = {};  ///< why it was not raised, though it should have been
};

/// What the options ask for: "keep" raises models below opset 7 alone, "auto" takes the smallest
/// opset among 13 to 22 in which most nodes go low, where that is more than now. Throws ConfigError
/// where the number asked for is below the model's opset. What it counts is added to `measured`.
OpsetChoice choose_opset(const std::filesystem::path& model, const ConvertPolicy&,
                         MeasuredFacts& measured);

/// What another opset would bring.
struct OpsetGain {
  int opset = 0;         ///< 0: nothing
  std::size_t more = 0;  ///< type variables that would go low besides
};

/// What "auto" would bring where the model's opset, `graph`'s, was kept; nothing where no opset can
/// be tried. Counts what the policy alone decides: `unmeasured` must be without evidence. Tries few
/// opsets, and only those in which an operator gains a low form that it may use.
OpsetGain gain_of_raising(const std::filesystem::path& model, const ConvertPolicy&,
                          MeasuredFacts& measured, const Graph& graph, const Decisions& unmeasured);

/// What is done to a model before anything is decided about it.
struct Preparation {
  int opset = 0;       ///< raised to; 0: it stays
  bool folds = false;  ///< batch normalizations

  // NOLINTNEXTLINE(google-explicit-constructor): most often an opset is all there is.
  Preparation(int to = 0, bool with_folding = false) : opset(to), folds(with_folding) {}
};

/// Opens a model, raised to that opset (0: as it is). Throws UnsupportedError where it cannot be.
std::unique_ptr<Document> open_raised(const std::filesystem::path& model, int opset);

/// The same, with batch normalizations folded where that is asked for; `folds` becomes what came of
/// each.
std::unique_ptr<Document> open_prepared(const std::filesystem::path& model, const Preparation&,
                                        std::vector<BatchNormFold>* folds = nullptr);

}  // namespace mezzo::convert
