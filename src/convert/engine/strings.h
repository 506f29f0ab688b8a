// Operators on strings, which the library does not know: to it a string is a number.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convert/engine/operator_call.h"

namespace mezzo::convert {

/// Has the call strings among its operands or results, or is it an operator on labels, which may be
/// strings?
bool concerns_strings(std::string_view domain, const OperatorCall&);

/// Runs such a call: operators on strings here, those that only move elements by the library, which
/// is given codes (onnx/texts.h). Appends one array per output. Returns what went wrong; empty:
/// nothing. Throws Error for strings that a call cannot take.
std::string run_on_strings(const OperatorLibrary&, const OperatorCall&,
                           std::vector<Array>* results);

/// LabelEncoder and CategoryMapper of ai.onnx.ml (labels.cpp).
std::vector<Array> encoded_labels(const OperatorCall&);
std::vector<Array> mapped_categories(const OperatorCall&);

}  // namespace mezzo::convert
