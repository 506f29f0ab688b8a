// Which opset a conversion works in.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "convert/constants.h"
#include "convert/policy.h"

namespace mezzo::convert {

class Document;

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

/// Opens a model, raised to that opset (0: as it is). Throws UnsupportedError where it cannot be.
std::unique_ptr<Document> open_raised(const std::filesystem::path& model, int opset);

}  // namespace mezzo::convert
