// Operators that MXNet names after numpy's functions: 2.x exports hold them, and 1.x ones in numpy
// mode. Most mean what an older operator means.
#pragma once

#include <span>
#include <string_view>

#include "core/dtype.h"

namespace mezzo::convert::mxnet {

struct NumpyOperator {
  std::string_view name;
  /// The older operator with the same inputs, attributes and results; empty: there is none.
  std::string_view classic;
  /// Its class, by the columns of the low types and by 2.x's lists, where it has no older name: one
  /// letter each as in the lists of 1.x, and o where the result has a type of its own.
  char classes[kLowTypeCount] = {'-', '-'};
};

std::span<const NumpyOperator> numpy_operators();

/// The row of an operator, or null.
const NumpyOperator* find_numpy_operator(std::string_view op);

/// The older name where there is one, else the name itself.
std::string_view classic_name(std::string_view op);

}  // namespace mezzo::convert::mxnet
