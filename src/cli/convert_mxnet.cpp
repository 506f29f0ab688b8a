#include "cli/convert_mxnet.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "core/raise.h"

namespace mezzo::cli {
namespace {

namespace mx = convert::mxnet;

void check_mxnet_target(const MxnetConversion& conversion) {
  if (conversion.params.empty())
    raise<ConfigError>("convert", "'", conversion.symbol,
                       "' is a graph of MXNet, whose parameters are in a file of their own; give "
                       "--params FILE");
  if (conversion.out.empty())
    raise<ConfigError>("convert",
                       "nothing to write: give -o OUT, for OUT-symbol.json and "
                       "OUT-0000.params");
  if (conversion.out.ends_with(".onnx"))
    raise<ConfigError>("convert", "-o '", conversion.out,
                       "': a model of MXNet is converted for MXNet; expected a prefix, for "
                       "OUT-symbol.json and OUT-0000.params");
  for (const std::string& in : {conversion.symbol, conversion.params}) {
    for (const char* end : {"-symbol.json", "-0000.params"}) {
      std::error_code missing;
      if (std::filesystem::equivalent(in, conversion.out + end, missing))
        raise<ConfigError>("convert", "'", in, "' would be overwritten; give another -o");
    }
  }
}

std::map<std::string, int> count_operators(const mx::Symbol& symbol) {
  std::map<std::string, int> counts;
  for (const mx::Node& node : symbol.nodes()) ++counts[node.op];
  return counts;
}

std::size_t count_low(const mx::NDArrays& arrays, const std::string& dtype) {
  std::size_t count = 0;
  for (const std::string& name : arrays.names()) count += arrays.dtype(name) == dtype ? 1 : 0;
  return count;
}

}  // namespace

bool is_mxnet_graph(const std::string& path) {
  return path.ends_with(".json");
}

void check_for_mxnet(const CLI::App& app, const std::string& graph) {
  static const std::set<std::string> kForMxnet = {"IN",
                                                  "--output",
                                                  "--params",
                                                  "--remove-amp-cast",
                                                  "--dtype",
                                                  "--quiet",
                                                  "--target-ops",
                                                  "--fp32-ops",
                                                  "--conditional-fp32-ops",
                                                  "--exclude",
                                                  "--cast-optional-params"};
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || kForMxnet.contains(option->get_name())) continue;
    raise<ConfigError>("convert", option->get_name(), " is for ONNX models, and '", graph,
                       "' is a graph of MXNet");
  }
}

void convert_mxnet(const MxnetConversion& conversion) {
  check_mxnet_target(conversion);
  const mx::Checkpoint read = mx::load_checkpoint(std::filesystem::path(conversion.symbol),
                                                  std::filesystem::path(conversion.params));
  const mx::Checkpoint made = mx::convert_model(read, conversion.options);
  mx::save_checkpoint(conversion.out, 0, made, conversion.remove_amp_cast);
  if (conversion.quiet) return;
  auto counts = count_operators(made.symbol);
  std::cout << conversion.out << "-symbol.json, " << conversion.out << "-0000.params: ";
  if (conversion.remove_amp_cast) {
    std::cout << "all parameters float32, casts taken out\n";
    return;
  }
  std::cout << counts["amp_cast"] << " amp_cast and " << counts["amp_multicast"]
            << " amp_multicast, " << count_low(made.arg_params, conversion.options.target_dtype)
            << " of " << made.arg_params.size() << " parameters in "
            << conversion.options.target_dtype << "\n";
}

std::string inspect_mxnet(const std::string& path) {
  const mx::Symbol symbol = mx::Symbol::load(path);
  std::ostringstream text;
  const std::int64_t version = symbol.mxnet_version();
  text << path << ": a graph of MXNet " << version / 10000 << '.' << version / 100 % 100 << '.'
       << version % 100 << ", " << symbol.nodes().size() << " nodes, "
       << symbol.list_inputs().size() << " variables (" << symbol.list_auxiliary_states().size()
       << " statistics), " << symbol.heads().size() << " results\n";
  for (const auto& [op, count] : count_operators(symbol)) {
    if (op != "null") text << "  " << count << " x " << op << "\n";
  }
  return text.str();
}

}  // namespace mezzo::cli
