// mezzo convert
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>

#include "cli/command.h"
#include "cli/convert_files.h"
#include "cli/convert_mxnet.h"
#include "cli/option_names.h"
#include "cli/progress.h"
#include "core/dtype.h"
#include "core/raise.h"
#include "mezzo/convert.h"
#include "platform/files.h"
#include "platform/temporaries.h"

namespace mezzo::cli {
namespace {

using convert::Conditional;

struct ConvertOptions {
  std::string in, out, plan, plan_out;
  std::vector<std::string> reports, io_of, conditions, calibration;
  std::vector<std::string> target_ops, fp32_ops, widest_ops;
  double tolerance = 0, time_limit = 0;
  bool cast_weights = true, quiet = false, json = false;
  std::string params;  // of MXNet's models
  std::vector<std::string> shapes;
  bool remove_amp_cast = false;
  convert::Options model;
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

// OP:ATTRIBUTE=VALUE,VALUE
Conditional condition_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::size_t equals = text.find('=', colon == std::string::npos ? 0 : colon);
  if (colon == std::string::npos || equals == std::string::npos || colon == 0 ||
      equals == colon + 1 || equals + 1 == text.size()) {
    raise<ConfigError>("convert", "--conditional-fp32-ops '", text,
                       "'; expected OP:ATTRIBUTE=VALUE,VALUE");
  }
  return {text.substr(0, colon), text.substr(colon + 1, equals - colon - 1),
          split(text.substr(equals + 1), ',')};
}

// A plan stands for all options that decide.
void check_beside_plan(const CLI::App& app) {
  static const std::set<std::string> kBeside = {
      "IN",         "--output", "--plan",        "--plan-out",  "--report",      "--quiet",
      "--json",     "--verify", "--calibration", "--evaluator", "--onnxruntime", "--check",
      "--tolerance"};
  if (app.count("--plan") == 0) return;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || kBeside.contains(option->get_name())) continue;
    raise<ConfigError>("convert", option->get_name(),
                       " is for deciding, and --plan has decided; leave one of the two out");
  }
}

convert::Options as_given(const CLI::App& app, const ConvertOptions& options) {
  check_beside_plan(app);
  convert::Options resolved = options.model;
  resolved.cast_optional_params = options.cast_weights;
  const auto given = [&](const char* name) { return app.count(name) != 0; };
  const bool is_for_cpu = resolved.profile == "ort-cpu";
  if (given("--cast-optional-params") && !options.cast_weights &&
      (resolved.weights_only || is_for_cpu)) {
    raise<ConfigError>("convert", is_for_cpu ? "--profile ort-cpu" : "--weights-only",
                       " stores weights in 16 bits, and --cast-optional-params=false "
                       "keeps them float32; give one of the two");
  }
  if (given("--target-ops")) resolved.target_dtype_ops = options.target_ops;
  if (given("--fp32-ops")) resolved.fp32_ops = options.fp32_ops;
  if (given("--widest-ops")) resolved.widest_dtype_ops = options.widest_ops;
  if (given("--conditional-fp32-ops")) {
    resolved.conditional_fp32_ops.emplace();
    for (const std::string& text : options.conditions)
      resolved.conditional_fp32_ops->push_back(condition_of(text));
  }
  for (const std::string& text : options.io_of) {
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0) {
      raise<ConfigError>("convert", "--io-of '", text, "'; expected NAME=DTYPE");
    }
    resolved.io_of[text.substr(0, equals)] = text.substr(equals + 1);
  }
  resolved.calibration.assign(options.calibration.begin(), options.calibration.end());
  if (given("--tolerance")) resolved.tolerance = options.tolerance;
  if (given("--time-limit")) resolved.time_limit = options.time_limit;
  if (!given("--tolerance") && !given("--check")) {
    for (const char* budget : {"--attempts", "--time-limit"}) {
      if (!given(budget)) continue;
      raise<ConfigError>("convert", budget,
                         " is the budget of a search, which --tolerance or --check starts; "
                         "expected one of them beside it");
    }
  }
  if (given("--check") && resolved.check.empty())
    raise<ConfigError>("convert", "--check is empty; expected a command with {} for the model");
  return resolved;
}

// What is written beside the model goes to files of its own, in folders that are there: a
// conversion should not fail after its work is done.
void check_files(const ConvertOptions& options) {
  std::vector<std::string> others{options.in};
  if (!options.out.empty()) others.insert(others.end(), {options.out, options.out + ".data"});
  if (!options.plan.empty()) others.push_back(options.plan);
  for (const std::string& sample : options.calibration) others.push_back(sample);
  std::vector<std::string> written = options.reports;
  if (!options.plan_out.empty()) written.push_back(options.plan_out);
  for (const std::string& path : written) {
    for (const std::string& other : others) {
      if (!is_same_file(path, other)) continue;
      raise<ConfigError>("convert", "'", path, "' is to be written as a plan or report and is '",
                         other, "', too; name another file");
    }
    others.push_back(path);
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder))
      raise("convert", "cannot write '", path, "': there is no folder '", folder.string(), "'");
  }
}

// Without -o there is a plan and nothing else.
int write_plan(const ConvertOptions& options, const convert::Options& resolved) {
  if (options.plan_out.empty())
    raise<ConfigError>("convert", "nothing to write: give -o OUT or --plan-out FILE");
  if (!options.reports.empty() || !options.plan.empty()) {
    raise<ConfigError>("convert",
                       options.plan.empty() ? "--report tells of" : "--plan is applied in",
                       " a conversion: give -o OUT");
  }
  const std::string plan = convert::plan_model(options.in, resolved).to_json();
  write_file(options.plan_out, plan);
  if (options.json) std::cout << plan;
  return kDone;
}

convert::Plan read_plan(const std::string& path) {
  const std::string text = read_file(path);
  try {
    return convert::Plan::from_json(text);
  } catch (const ConfigError& error) {
    raise<ConfigError>("convert", "'", path, "' is no plan: ", error.what());
  }
}

convert::Judges judges_of(const convert::Options& resolved) {
  return {.verify = resolved.verify,
          .calibration = resolved.calibration,
          .tolerance = resolved.tolerance,
          .check = resolved.check,
          .evaluator = resolved.evaluator,
          .onnxruntime = resolved.onnxruntime,
          .progress = resolved.progress};
}

// The evaluator's threads wait often and shortly. Where they spin meanwhile, as OpenMP's do by
// default, a machine that has other work takes many times as long. Read when LibTorch is loaded.
void let_threads_sleep() {
  ::setenv("OMP_WAIT_POLICY", "passive", 0);
}

int run_mxnet(const CLI::App& app, const ConvertOptions& options) {
  check_for_mxnet(app, options.in);
  const convert::Options given = as_given(app, options);
  convert_mxnet({.symbol = options.in,
                 .params = options.params,
                 .out = options.out,
                 .remove_amp_cast = options.remove_amp_cast,
                 .quiet = options.quiet,
                 .options = {.target_dtype = given.target_dtype,
                             .target_dtype_ops = given.target_dtype_ops,
                             .fp32_ops = given.fp32_ops,
                             .conditional_fp32_ops = given.conditional_fp32_ops,
                             .excluded_sym_names = given.excluded_names,
                             .cast_optional_params = given.cast_optional_params}});
  return kDone;
}

std::string text_of_conversion(const convert::Report& report) {
  return report.target_dtype == "float32" ? float_text(report) : in_flags(report.to_text());
}

convert::Result converted(const ConvertOptions& options, const convert::Options& resolved) {
  if (is_mxnet_graph(options.in))
    return mxnet_to_onnx(options.in, options.params, options.out, resolved, options.shapes);
  if (options.plan.empty()) return convert::convert_model(options.in, options.out, resolved);
  return convert::apply_plan(options.in, options.out, read_plan(options.plan), judges_of(resolved));
}

int run(const CLI::App& app, const ConvertOptions& options) {
  if (is_mxnet_graph(options.in) && !options.out.ends_with(".onnx")) return run_mxnet(app, options);
  check_for_onnx(app, options.in);
  let_threads_sleep();
  check_reports(options.reports);
  check_files(options);
  platform::remove_temporaries_when_stopped();
  convert::Options resolved = as_given(app, options);
  std::optional<ProgressBar> bar;
  if (!options.quiet) {
    bar.emplace();
    resolved.progress = [&](std::string_view what, double share) { bar->show(what, share); };
  }
  if (options.out.empty()) return write_plan(options, resolved);
  const convert::Result result = converted(options, resolved);
  bar.reset();
  if (!options.plan_out.empty()) write_file(options.plan_out, result.plan.to_json());
  for (const std::string& path : options.reports) {
    const bool html = std::filesystem::path(path).extension() == ".html";
    write_file(path, html ? result.report.to_html() : result.report.to_json());
  }
  if (options.json) {
    std::cout << result.report.to_json();
  } else if (!options.quiet) {
    std::cout << text_of_conversion(result.report);
    const bool chose_storage = app.count("--cast-optional-params") != 0 || !options.plan.empty();
    if (!chose_storage && !result.plan.weights_only && result.report.low_weights != 0) {
      std::cout << "weights are stored low (--cast-optional-params=false keeps them float32 behind "
                   "Casts)\n";
    }
  }
  return kDone;
}

// Lists take one value a time: IN may stand behind any of them.
void add_policy(CLI::App& app, ConvertOptions& options) {
  app.add_option("--target-ops", options.target_ops,
                 "Operators that run in the target type: replaces the list; +Op and -Op edit it")
      ->delimiter(',')
      ->type_name("OPS")
      ->allow_extra_args(false);
  app.add_option("--fp32-ops", options.fp32_ops, "Operators that stay float32")
      ->delimiter(',')
      ->type_name("OPS")
      ->allow_extra_args(false);
  app.add_option("--widest-ops", options.widest_ops,
                 "Operators that run in the widest type of their inputs")
      ->delimiter(',')
      ->type_name("OPS")
      ->allow_extra_args(false);
  app.add_option("--conditional-fp32-ops", options.conditions,
                 "Operators that stay float32 by attribute")
      ->type_name("OP:ATTR=V1,V2")
      ->allow_extra_args(false);
  app.add_option("--exclude", options.model.excluded_names,
                 "Nodes that stay float32: name, glob or /regex/")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_option("--exclude-tensor", options.model.excluded_tensors,
                 "Values that stay float32, made and read: name, glob or /regex/")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_option("--exclude-input", options.model.excluded_inputs,
                 "Inputs of nodes, or of an operator's nodes, that stay float32")
      ->type_name("NODE:INDEX")
      ->allow_extra_args(false);
  app.add_option("--exclude-region", options.model.excluded_regions,
                 "All that lies on a way from one value to another stays float32")
      ->type_name("FROM TO")
      ->allow_extra_args(false);
  app.add_option("--without-pin", options.model.without_pins,
                 "Reasons for float32 that do not hold here, as the report names them")
      ->delimiter(',')
      ->type_name("PIN")
      ->allow_extra_args(false);
  app.add_flag("--allow-unknown", options.model.allow_unknown_ops,
               "Lists may name operators that nothing describes");
  app.add_option("--custom-ops", options.model.custom_operators,
                 "Files that describe operators which ONNX does not know (docs/convert.md)")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("--include", options.model.included_names,
                 "Nodes that go low: name, glob or /regex/")
      ->type_name("NAME")
      ->allow_extra_args(false);
}

void add_judges(CLI::App& app, ConvertOptions& options) {
  app.add_option("--calibration", options.calibration,
                 "Samples: .npz, .npy or ONNX tensor files; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("--headroom", options.model.headroom,
                 "How many times larger than on the samples values may become (4)")
      ->type_name("X");
  app.add_option("--verify", options.model.verify,
                 "What must be confirmed before OUT is written (load)")
      ->type_name("none|load|run|compare");
  app.add_option("--evaluator", options.model.evaluator,
                 "The built-in evaluator's library, or its folder; without: where Mezzo is")
      ->type_name("PATH");
  app.add_option("--onnxruntime", options.model.onnxruntime,
                 "ONNX Runtime's library, or its folder; without: the system's")
      ->type_name("PATH");
  app.add_option("--tolerance", options.tolerance,
                 "Largest error relative to an output's range; searches what must stay float32")
      ->type_name("X");
  app.add_option("--check", options.model.check,
                 "A command that accepts a model ({}) by exit code 0; where it does not, what must "
                 "stay float32 is searched")
      ->type_name("COMMAND");
  app.add_option("--attempts", options.model.attempts, "How many models a search may judge (80)")
      ->type_name("N");
  app.add_option("--time-limit", options.time_limit,
                 "After how many seconds a search begins no other attempt")
      ->type_name("SECONDS");
}

}  // namespace

Action setup_convert(CLI::App& app) {
  const auto options = std::make_shared<ConvertOptions>();
  app.add_option("IN", options->in, "An ONNX model, or a -symbol.json of MXNet")
      ->required()
      ->type_name("FILE");
  app.add_option("-o,--output", options->out, "The model to write; the input is never overwritten")
      ->type_name("OUT");
  app.add_option("--dtype", options->model.target_dtype,
                 "The 16-bit type (float16); float32 from MXNet to ONNX")
      ->type_name(low_type_names("|"));
  app.add_option("--io", options->model.io, "Inputs and outputs keep their types, or go low (keep)")
      ->type_name("keep|low");
  app.add_option("--io-of", options->io_of, "The type of one input or output")
      ->type_name("NAME=DTYPE")
      ->allow_extra_args(false);
  add_policy(app, *options);
  app.add_option("--cast-optional-params", options->cast_weights,
                 "Store weights low, or behind Casts (true)")
      ->type_name("BOOL");
  app.add_option("--profile", options->model.profile,
                 "What the target runs in 16 bits (portable: the standard, but\nfor what ONNX "
                 "Runtime joins wrongly)")
      ->type_name("portable|spec|ort|ort-cpu|ort-cuda|trt|openvino");
  app.add_option("--opset", options->model.opset, "Keep, raise where it helps, or a number (keep)")
      ->type_name("keep|auto|N");
  add_judges(app, *options);
  app.add_option("--params", options->params, "The parameters of a graph of MXNet")
      ->type_name("FILE");
  app.add_option("--input", options->shapes,
                 "From MXNet to ONNX: the shape of data, 0 where a size changes")
      ->type_name("NAME=SHAPE")
      ->allow_extra_args(false);
  app.add_flag("--remove-amp-cast", options->remove_amp_cast,
               "MXNet: take casts out again, all parameters float32");
  app.add_flag("--weights-only", options->model.weights_only,
               "Store weights low, compute in float32");
  app.add_flag("--clamp-weights", options->model.clamp_weights,
               "Weights beyond the type's range take its largest value");
  app.add_flag("--raise-epsilons", options->model.raise_epsilons,
               "Numbers that guard divisors and roots take its smallest normal value");
  app.add_flag("--fold-batch-norm", options->model.fold_batch_norm,
               "Batch normalizations become part of the products before them");
  app.add_option("--plan", options->plan, "Apply this plan, which stands for all that decides")
      ->type_name("FILE");
  app.add_option("--plan-out", options->plan_out, "Write the plan; without -o nothing else")
      ->type_name("FILE");
  app.add_option("--report", options->reports, "Write the whole report")
      ->type_name("FILE.json|.html")
      ->allow_extra_args(false);
  app.add_flag("--quiet", options->quiet, "Print nothing");
  app.add_flag("--json", options->json, "Print the report as JSON");
  return [options, &app] { return run(app, *options); };
}

}  // namespace mezzo::cli
