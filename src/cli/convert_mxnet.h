// mezzo convert X-symbol.json --params X-0000.params -o OUT
#pragma once

#include <string>

#include "mezzo/convert_mxnet.h"

namespace CLI {
class App;
}

namespace mezzo::cli {

/// Is this the name of a graph of MXNet, rather than of an ONNX model?
bool is_mxnet_graph(const std::string& path);

/// Throws ConfigError where an option is given that is for ONNX models alone.
void check_for_mxnet(const CLI::App& app, const std::string& graph);

struct MxnetConversion {
  std::string symbol, params, out;
  bool remove_amp_cast = false, quiet = false;
  convert::mxnet::Options options = {};
};

/// Converts, writes OUT-symbol.json and OUT-0000.params, and says what was stored how.
void convert_mxnet(const MxnetConversion& conversion);

/// What is in a graph of MXNet, as text.
std::string inspect_mxnet(const std::string& path);

}  // namespace mezzo::cli
