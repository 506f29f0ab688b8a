// mezzo inspect
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/command.h"
#include "cli/convert_mxnet.h"
#include "core/raise.h"
#include "mezzo/convert.h"

namespace mezzo::cli {

Action setup_inspect(CLI::App& app) {
  struct Options {
    std::string model;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  app.add_option("MODEL", options->model, "An ONNX model, or a -symbol.json of MXNet")
      ->required()
      ->type_name("FILE");
  app.add_flag("--json", options->json, "Print JSON");
  return [options] {
    if (is_mxnet_graph(options->model)) {
      if (options->json)
        raise<ConfigError>("inspect", "--json is for ONNX models; a graph of MXNet is JSON itself");
      std::cout << inspect_mxnet(options->model);
      return kDone;
    }
    const convert::Inspection inspection = convert::inspect_model(options->model);
    std::cout << (options->json ? inspection.to_json() : inspection.to_text());
    return kDone;
  };
}

}  // namespace mezzo::cli
