// mezzo convert X-symbol.json --params X-0000.params -o OUT
#pragma once

#include <string>
#include <vector>

#include "mezzo/convert_mxnet.h"

namespace CLI {
class App;
}

namespace mezzo::cli {

/// Is this the name of a graph of MXNet, rather than of an ONNX model?
bool is_mxnet_graph(const std::string& path);

/// Throws ConfigError if an option is given that is for ONNX models alone.
void check_for_mxnet(const CLI::App& app, const std::string& graph);

/// As above, for what becomes ONNX, from ONNX or from a graph of MXNet.
void check_for_onnx(const CLI::App& app, const std::string& in);

struct MxnetConversion {
  std::string symbol, params, out;
  bool remove_amp_cast = false, quiet = false;
  convert::mxnet::Options options = {};
};

/// Converts, writes OUT-symbol.json and OUT-0000.params, and says what was stored how.
void convert_mxnet(const MxnetConversion& conversion);

/// Writes an ONNX model. `shapes` are texts of --input (input_shape.h), 0 if a size changes.
convert::Result mxnet_to_onnx(const std::string& symbol, const std::string& params,
                              const std::string& out, const convert::Options& options,
                              const std::vector<std::string>& shapes);

/// The report about a model that stays float32, for a terminal.
std::string float_text(const convert::Report& report);

/// The content of a graph of MXNet, as text.
std::string inspect_mxnet(const std::string& path);

}  // namespace mezzo::cli
