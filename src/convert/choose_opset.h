// Which opset a conversion works in.
#pragma once

#include <filesystem>
#include <memory>

#include "convert/policy.h"

namespace mezzo::convert {

class Document;

/// The opset to raise the model to, as the options ask; 0: as it is. "auto" takes the smallest
/// among 13 to 22 in which most nodes go low, where that is more than now. Throws UnsupportedError
/// where a number is asked for that cannot be reached.
int choose_opset(const std::filesystem::path& model, const ConvertPolicy&);

/// Opens a model, raised to that opset (0: as it is).
std::unique_ptr<Document> open_raised(const std::filesystem::path& model, int opset);

}  // namespace mezzo::convert
