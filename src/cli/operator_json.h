// The operator table as JSON and as words, for `lists` and `explain`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "operators/operators.h"

namespace mezzo::cli {

/// The low types that a class is shown for: both, or the one that the user asked for.
std::vector<DType> low_types(const std::optional<DType>& only);

/// "apex low, mxnet promote": what the systems' lists say. Empty if none lists the operator.
std::string listed_in_words(const Operator&);

/// The row's reason, and who agrees.
std::string reason_of(const Operator&, DType low);

/// {"op", "class": {"float16": ...}, "why", "aliases", "sources", "listed"}: "sources" are the
/// systems that list the operator, "listed" has their classes.
nlohmann::ordered_json json_of(std::size_t row, const std::vector<DType>& lows);

}  // namespace mezzo::cli
