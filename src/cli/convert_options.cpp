#include "cli/convert_options.h"

#include <CLI/CLI.hpp>

#include "core/dtype.h"

namespace mezzo::cli {
namespace {

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

void add_weights(CLI::App& app, ConvertOptions& options) {
  app.add_option("--cast-optional-params", options.cast_weights,
                 "Store weights low, or behind Casts (true)")
      ->type_name("BOOL");
  app.add_flag("--weights-only", options.model.weights_only,
               "Store weights low, compute in float32");
  app.add_flag("--clamp-weights", options.model.clamp_weights,
               "Weights beyond the type's range take its largest value");
  app.add_flag("--raise-epsilons", options.model.raise_epsilons,
               "Numbers that guard divisors and roots take its smallest normal value");
  app.add_flag("--fold-batch-norm", options.model.fold_batch_norm,
               "Batch normalizations become part of the products before them");
}

void add_formats(CLI::App& app, ConvertOptions& options) {
  app.add_option("--input", options.inputs,
                 "TorchScript: an input to compare both modules on, in order, as 1x3x224x224 or "
                 "1x128:int64; from MXNet to ONNX: the shape of data, as data=1,3,224,224, 0 where "
                 "a size changes")
      ->type_name("SHAPE[:DTYPE]|NAME=SHAPE")
      ->allow_extra_args(false);
  app.add_option("--params", options.params, "The parameters of a graph of MXNet")
      ->type_name("FILE");
  app.add_flag("--remove-amp-cast", options.remove_amp_cast,
               "MXNet: take casts out again, all parameters float32");
}

void add_results(CLI::App& app, ConvertOptions& options) {
  app.add_option("--plan", options.plan, "Apply this plan, which stands for all that decides")
      ->type_name("FILE");
  app.add_option("--plan-out", options.plan_out, "Write the plan; without -o nothing else")
      ->type_name("FILE");
  app.add_option("--report", options.reports, "Write the whole report")
      ->type_name("FILE.json|.html")
      ->allow_extra_args(false);
  app.add_flag("--quiet", options.quiet, "Print nothing");
  app.add_flag("--json", options.json, "Print the report as JSON");
}

// Gives the options that `add` adds a heading of their own.
void add_under(const char* heading, CLI::App& app, ConvertOptions& options,
               void (*add)(CLI::App&, ConvertOptions&)) {
  const std::size_t before = app.get_options().size();
  add(app, options);
  const std::vector<CLI::Option*> all = app.get_options();
  for (std::size_t i = before; i < all.size(); ++i) all[i]->group(heading);
}

}  // namespace

void add_convert_options(CLI::App& app, ConvertOptions& options) {
  app.add_option("IN", options.in,
                 "An ONNX model, a TorchScript module (.pt), or a -symbol.json of MXNet")
      ->required()
      ->type_name("FILE");
  app.add_option("-o,--output", options.out, "The model to write; the input is never overwritten")
      ->type_name("OUT");
  app.add_option("--dtype", options.model.target_dtype,
                 "The 16-bit type (float16); float32 from MXNet to ONNX")
      ->type_name(low_type_names("|"));
  app.add_option("--io", options.model.io, "Inputs and outputs keep their types, or go low (keep)")
      ->type_name("keep|low");
  app.add_option("--io-of", options.io_of, "The type of one input or output")
      ->type_name("NAME=DTYPE")
      ->allow_extra_args(false);
  app.add_option("--profile", options.model.profile,
                 "What the target runs in 16 bits (portable: the standard, but\nfor what ONNX "
                 "Runtime joins wrongly)")
      ->type_name("portable|spec|ort|ort-cpu|ort-cuda|trt|openvino");
  app.add_option("--opset", options.model.opset, "Keep, raise where it helps, or a number (keep)")
      ->type_name("keep|auto|N");
  add_under("Which parts go low", app, options, add_policy);
  add_under("Weights and constants", app, options, add_weights);
  add_under("Samples and judges", app, options, add_judges);
  add_under("Other formats", app, options, add_formats);
  add_under("Plan and report", app, options, add_results);
}

}  // namespace mezzo::cli
