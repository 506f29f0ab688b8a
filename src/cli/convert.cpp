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
#include "cli/convert_options.h"
#include "cli/convert_script.h"
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

// Files beside the model go to folders that are there: a
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

// The evaluator's threads wait often and shortly. If they spin meanwhile, as OpenMP's do by
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

int run_script(const CLI::App& app, const ConvertOptions& options) {
  check_for_script(app, options.in);
  let_threads_sleep();
  platform::remove_temporaries_when_stopped();
  check_files(options);
  convert_script({.in = options.in,
                  .out = options.out,
                  .inputs = options.inputs,
                  .reports = options.reports,
                  .quiet = options.quiet,
                  .json = options.json,
                  .options = as_given(app, options)});
  return kDone;
}

std::string text_of_conversion(const convert::Report& report) {
  return report.target_dtype == "float32" ? float_text(report) : in_flags(report.to_text());
}

convert::Result converted(const ConvertOptions& options, const convert::Options& resolved) {
  if (is_mxnet_graph(options.in))
    return mxnet_to_onnx(options.in, options.params, options.out, resolved, options.inputs);
  if (options.plan.empty()) return convert::convert_model(options.in, options.out, resolved);
  return convert::apply_plan(options.in, options.out, read_plan(options.plan), judges_of(resolved));
}

int run(const CLI::App& app, const ConvertOptions& options) {
  if (is_mxnet_graph(options.in) && !options.out.ends_with(".onnx")) return run_mxnet(app, options);
  if (is_script(options.in)) return run_script(app, options);
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

}  // namespace

Action setup_convert(CLI::App& app) {
  const auto options = std::make_shared<ConvertOptions>();
  add_convert_options(app, *options);
  return [options, &app] { return run(app, *options); };
}

}  // namespace mezzo::cli
