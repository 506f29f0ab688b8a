// Facts of MXNet 1.9.1 about its operators: their tensors, their attributes, and how those are
// written. The table is made by tools/make_mxnet_operators.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mezzo::convert::mxnet {

enum class AttributeKind : std::uint8_t {
  kFlag,
  kWhole,
  kCount,  ///< a whole number from 0
  kNumber,
  kSizes,    ///< whole numbers in parentheses
  kNumbers,  ///< numbers in parentheses
  kWord,     ///< one of `words`
  kText
};

struct AttributeFacts {
  std::string_view name;
  AttributeKind kind = AttributeKind::kText;
  bool may_be_none = false;
  bool is_required = false;
  std::string_view words = {};  ///< with a comma between each two
};

struct OperatorFacts {
  std::string_view name;  ///< its own, of several
  std::vector<std::string_view> tensors = {};
  bool takes_many = false;  ///< any number of the last tensor
  std::vector<AttributeFacts> attributes = {};
};

/// The facts of an operator, by any of its names; null if MXNet 1.9.1 has none of this name.
const OperatorFacts* find_operator(std::string_view op);

/// Is it an operator of any release, as far as is known here?
bool is_known(std::string_view op);

/// "; did you mean 'relu'?", or nothing.
std::string nearest_operators(std::string_view op);

}  // namespace mezzo::convert::mxnet
