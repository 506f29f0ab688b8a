// Shapes of data, as far as known: what the caller says, what the file says, and what the
// operators that read it need.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convert/from_mxnet/call.h"

namespace mezzo::convert::mxnet {

struct InputShape {
  std::optional<Dims> dims;
  std::vector<std::string> names;  ///< of sizes that change
};

/// The shape of a variable that is data.
InputShape input_shape(const Source& source, std::uint32_t variable,
                       const std::map<std::string, std::vector<std::int64_t>>& given);

}  // namespace mezzo::convert::mxnet
