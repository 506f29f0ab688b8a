// mezzo export
#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/input_shape.h"
#include "cli/torch_part.h"
#include "core/nearest.h"
#include "core/raise.h"
#include "mezzo/convert.h"
#include "platform/temporaries.h"

namespace mezzo::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ExportOptions {
  std::string model, output, dtype, evaluator, onnxruntime;
  std::vector<std::string> inputs, dynamic;
  int opset = 17;
  double tolerance = 1e-4;
  bool no_verify = false, json = false;
  bool has_opset = false;
};

/// "ids:0=batch" as its three parts.
Json axis_of(const std::string& text) {
  const std::size_t colon = text.rfind(':'),
                    equals = text.find('=', colon == std::string::npos ? 0 : colon);
  const std::string axis = colon == std::string::npos || equals == std::string::npos
                               ? ""
                               : text.substr(colon + 1, equals - colon - 1);
  if (axis.empty() || axis.size() > 3 ||
      axis.find_first_not_of("-0123456789") != std::string::npos || equals + 1 == text.size())
    raise<ConfigError>("export", "--dynamic ", text,
                       ": expected INPUT:AXIS=NAME, such as input:0=batch");
  return {text.substr(0, colon), std::stoll(axis), text.substr(equals + 1)};
}

int export_model(const ExportOptions& options) {
  namespace fs = std::filesystem;
  if (!options.dtype.empty() && options.dtype != "float16" && options.dtype != "bfloat16") {
    constexpr std::array<std::string_view, 2> kTypes{"float16", "bfloat16"};
    raise<ConfigError>("export", "--dtype takes float16 or bfloat16, got '", options.dtype, "'",
                       did_you_mean(options.dtype, kTypes));
  }
  // With a low type the float model is made beside the target, converted, and removed.
  const fs::path target = options.output;
  platform::remove_temporaries_when_stopped();
  const auto folder = options.dtype.empty() ? nullptr : platform::folder_beside(target, "export");
  const fs::path plain = folder ? folder->path() / "float32.onnx" : target;
  Json dynamic = Json::array();
  for (const std::string& axis : options.dynamic) dynamic.push_back(axis_of(axis));
  const Json answer = ask_torch("export", {{"model", options.model},
                                           {"output", plain.string()},
                                           {"target", options.output},
                                           {"inputs", input_requests("export", options.inputs)},
                                           {"dynamic", dynamic},
                                           {"opset", options.opset},
                                           {"tolerance", options.tolerance},
                                           {"verify", !options.no_verify},
                                           {"evaluator", options.evaluator},
                                           {"onnxruntime", options.onnxruntime}});
  Json report = answer.at("json");
  std::string text = answer.at("text").get<std::string>();
  if (!options.dtype.empty()) {
    convert::Options low;
    low.target_dtype = options.dtype;
    low.evaluator = options.evaluator;
    low.onnxruntime = options.onnxruntime;
    if (!options.has_opset) low.opset = "auto";  // ours to choose
    convert::Result result = convert::convert_model(plain, target, low);
    result.report.input = options.model;
    report["conversion"] = Json::parse(result.report.to_json());
    text += result.report.to_text();
  }
  if (options.json) {
    std::cout << report.dump(2) << '\n';
  } else {
    std::cout << options.output << ": " << text;
  }
  return kDone;
}

}  // namespace

Action setup_export(CLI::App& app) {
  const auto options = std::make_shared<ExportOptions>();
  app.add_option("MODEL", options->model, "A TorchScript file, traced or scripted")
      ->required()
      ->type_name("FILE");
  app.add_option("-o,--output", options->output, "The ONNX file to write")
      ->required()
      ->type_name("FILE");
  app.add_option("--input", options->inputs,
                 "One a tensor, in order or by name: 1x3x224x224, ids=2,16:int64, scalar")
      ->required()
      ->type_name("[NAME=]SHAPE[:DTYPE]")
      ->allow_extra_args(false);
  app.add_option("--dynamic", options->dynamic, "An axis of any size; the input by name or number")
      ->type_name("INPUT:AXIS=NAME")
      ->allow_extra_args(false);
  app.add_option("--opset", options->opset,
                 "The opset, 13 to 21; with --dtype that or the lowest in which most goes low")
      ->capture_default_str();
  app.add_option("--dtype", options->dtype, "Convert the result: float16 or bfloat16")
      ->type_name("DTYPE");
  app.add_option("--tolerance", options->tolerance,
                 "The error that verification accepts, relative to an output's range")
      ->capture_default_str();
  app.add_flag("--no-verify", options->no_verify, "Do not run the file and compare");
  app.add_option("--evaluator", options->evaluator,
                 "The built-in evaluator's library, if not where it is installed")
      ->type_name("PATH");
  app.add_option("--onnxruntime", options->onnxruntime, "ONNX Runtime's library, or its folder")
      ->type_name("PATH");
  app.add_flag("--json", options->json, "Print JSON");
  return [options, &app] {
    options->has_opset = app.count("--opset") != 0;
    return export_model(*options);
  };
}

}  // namespace mezzo::cli
