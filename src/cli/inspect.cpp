// mezzo inspect
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/command.h"
#include "mezzo/convert.h"

namespace mezzo::cli {

Action setup_inspect(CLI::App& app) {
  struct Options {
    std::string model;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  app.add_option("MODEL", options->model, "An ONNX model")->required()->type_name("FILE");
  app.add_flag("--json", options->json, "Print JSON");
  return [options] {
    const convert::Inspection inspection = convert::inspect_model(options->model);
    std::cout << (options->json ? inspection.to_json() : inspection.to_text());
    return kDone;
  };
}

}  // namespace mezzo::cli
