// A graph of MXNet with its parameters, translated to ONNX.
#pragma once

#include <map>
#include <string>

#include "convert/from_mxnet/onnx_writer.h"
#include "mezzo/convert_mxnet.h"

namespace mezzo::convert::mxnet {

/// Writes all that the graph's results need to `writer`, which then looks at the bytes of
/// `checkpoint`. `shapes` are those of data, by name; 0 is a size that changes. Throws
/// UnsupportedError if an operator has no form in ONNX, ConfigError if a name or shape
/// cannot be, Error if the files contradict each other.
void translate(const Checkpoint& checkpoint,
               const std::map<std::string, std::vector<std::int64_t>>& shapes, OnnxWriter& writer);

}  // namespace mezzo::convert::mxnet
