// The table of translations: a row for each operator of MXNet that has a form in ONNX.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "convert/from_mxnet/call.h"

namespace mezzo::convert::mxnet {

/// Which inputs a translation reads; the others need no node of their own.
enum class Reads : std::uint8_t {
  kAll,
  kFirst,         ///< the data: labels are not there when a network is used
  kAllButSecond,  ///< parameters in one vector are taken apart
};

struct TranslationRow {
  std::string_view ops;  ///< MXNet's names, separated by spaces
  Operands (*translate)(Call&);
  Reads reads = Reads::kAll;
  /// Does the result have the shape of the first input? Then shapes are known before as well.
  bool keeps_shape = false;
};

std::span<const TranslationRow> elementwise_rows();
std::span<const TranslationRow> layer_rows();
std::span<const TranslationRow> norm_rows();
std::span<const TranslationRow> product_rows();
std::span<const TranslationRow> shape_rows();
std::span<const TranslationRow> image_rows();
std::span<const TranslationRow> reduction_rows();
std::span<const TranslationRow> indexing_rows();
std::span<const TranslationRow> sequence_rows();
std::span<const TranslationRow> recurrent_rows();
std::span<const TranslationRow> detection_rows();
std::span<const TranslationRow> numpy_rows();
std::span<const TranslationRow> numpy_shape_rows();

/// The row of an operator, or null.
const TranslationRow* find_translation(std::string_view op);

/// Names of all operators in the table.
std::vector<std::string_view> translated_operators();

}  // namespace mezzo::convert::mxnet
