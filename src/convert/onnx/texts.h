// Texts in arrays: an array of strings has one code of 64 bits in the place of each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convert/onnx/array.h"

namespace mezzo::convert {

/// The code of a text: equal texts have one code, and codes have no order. Codes stay valid for the
/// life of the process. From any thread.
std::int64_t code_of(std::string_view text);

/// The text behind a code of code_of(). From any thread.
const std::string& text_of(std::int64_t code);

/// An array of strings, as many as the dimensions say.
Array array_of(const std::vector<std::string>& texts, std::vector<std::int64_t> dims);

/// The codes, and the texts, of an array of strings.
std::vector<std::int64_t> codes_of(const Array&);
std::vector<std::string> texts_of(const Array&);

}  // namespace mezzo::convert
