#include "cli/convert_mxnet.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "cli/input_shape.h"
#include "core/raise.h"

namespace mezzo::cli {
namespace {

namespace mx = convert::mxnet;

void check_params(const std::string& symbol, const std::string& params) {
  if (params.empty())
    raise<ConfigError>("convert", "'", symbol,
                       "' is a graph of MXNet, whose parameters are in a file of their own; give "
                       "--params FILE");
}

void check_mxnet_target(const MxnetConversion& conversion) {
  check_params(conversion.symbol, conversion.params);
  if (conversion.out.empty())
    raise<ConfigError>("convert",
                       "nothing to write: give -o OUT, for OUT-symbol.json and "
                       "OUT-0000.params, or -o OUT.onnx");
  for (const std::string& in : {conversion.symbol, conversion.params}) {
    for (const char* end : {"-symbol.json", "-0000.params"}) {
      std::error_code missing;
      if (std::filesystem::equivalent(in, conversion.out + end, missing))
        raise<ConfigError>("convert", "'", in, "' would be overwritten; give another -o");
    }
  }
}

// Data are the variables without parameters; shapes without a name are theirs, in order.
mx::InputShapes shapes_of(mx::Checkpoint& checkpoint, const std::vector<InputShape>& given) {
  mx::InputShapes shapes;
  std::map<std::string, std::string> types;
  std::vector<InputShape> unnamed;
  const auto add = [&](const std::string& name, const InputShape& shape) {
    if (!shapes.emplace(name, shape.sizes).second)
      raise<ConfigError>("convert", "--input '", shape.text, "' gives '", name,
                         "' a second time; expected each input once");
    if (shape.dtype) types[name] = name_of(*shape.dtype);
  };
  for (const InputShape& shape : given) {
    if (shape.name.empty()) {
      unnamed.push_back(shape);
    } else {
      add(shape.name, shape);
    }
  }
  std::vector<std::string> data = checkpoint.symbol.list_inputs();
  std::erase_if(data, [&](const std::string& name) {
    return checkpoint.arg_params.contains(name) || checkpoint.aux_params.contains(name) ||
           shapes.contains(name);
  });
  for (std::size_t i = 0; i < unnamed.size(); ++i) {
    if (i == data.size())
      raise<ConfigError>("convert", "--input '", unnamed[i].text,
                         "' is one more than the graph has data");
    add(data[i], unnamed[i]);
  }
  std::vector<mx::Node> nodes = checkpoint.symbol.nodes();
  for (mx::Node& node : nodes)
    if (node.is_variable() && types.contains(node.name)) node.attrs["__dtype__"] = types[node.name];
  if (!types.empty())
    checkpoint.symbol = checkpoint.symbol.with_graph(std::move(nodes), checkpoint.symbol.heads());
  return shapes;
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

void check_for_onnx(const CLI::App& app, const std::string& in) {
  const bool is_mxnet = is_mxnet_graph(in);
  for (const char* name : {"--params", "--remove-amp-cast", "--input"}) {
    if (!is_mxnet && app.count(name) != 0)
      raise<ConfigError>("convert", name, " is for MXNet's X-symbol.json, and '", in, "' is none");
  }
  for (const char* name : {"--remove-amp-cast", "--plan"}) {
    if (is_mxnet && app.count(name) != 0)
      raise<ConfigError>("convert", name,
                         " beside -o OUT.onnx: there is nothing that it would mean "
                         "for '",
                         in, "'; leave one of the two out");
  }
}

convert::Result mxnet_to_onnx(const std::string& symbol, const std::string& params,
                              const std::string& out, const convert::Options& options,
                              const std::vector<std::string>& shapes) {
  check_params(symbol, params);
  std::vector<InputShape> asked;
  asked.reserve(shapes.size());
  for (const std::string& text : shapes) asked.push_back(read_input_shape("convert", text));
  mx::Checkpoint read =
      mx::load_checkpoint(std::filesystem::path(symbol), std::filesystem::path(params));
  const mx::InputShapes given = shapes_of(read, asked);
  convert::Result result = mx::to_onnx(read, out, options, given);
  result.report.input = symbol;
  return result;
}

std::string float_text(const convert::Report& report) {
  std::ostringstream text;
  text << report.input << " -> " << report.output << " (float32): " << report.nodes << " nodes, "
       << report.weights << " constants, " << report.bytes_after << " bytes, opset "
       << report.opset_after << "\n";
  if (!report.verified.empty()) text << report.verified << "\n";
  return text.str();
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
