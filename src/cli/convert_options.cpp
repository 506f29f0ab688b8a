#include "cli/convert_options.h"

#include <CLI/CLI.hpp>

#include "core/dtype.h"

namespace mezzo::cli {
namespace {

template <typename T>
CLI::Option* add_value(CLI::App& app, const char* name, T& value, const std::string& type,
                       const char* help) {
  return app.add_option(name, value, help)->type_name(type);
}

// Lists take one value a time: IN may stand behind any of them.
template <typename T>
CLI::Option* add_list(CLI::App& app, const char* name, T& values, const char* type,
                      const char* help) {
  return add_value(app, name, values, type, help)->allow_extra_args(false);
}

void add_policy(CLI::App& app, ConvertOptions& options) {
  add_list(app, "--target-ops", options.target_ops, "OPS",
           "Operators that run in the target type: replaces the list; +Op and -Op edit it")
      ->delimiter(',');
  add_list(app, "--fp32-ops", options.fp32_ops, "OPS", "Operators that stay float32")
      ->delimiter(',');
  add_list(app, "--widest-ops", options.widest_ops, "OPS",
           "Operators that run in the widest type of their inputs")
      ->delimiter(',');
  add_list(app, "--conditional-fp32-ops", options.conditions, "OP:ATTR=V1,V2",
           "Operators that stay float32 by attribute");
  add_list(app, "--exclude", options.model.excluded_names, "NAME",
           "Nodes that stay float32: name, glob or /regex/");
  add_list(app, "--exclude-tensor", options.model.excluded_tensors, "NAME",
           "Values that stay float32, made and read: name, glob or /regex/");
  add_list(app, "--exclude-input", options.model.excluded_inputs, "NODE:INDEX",
           "Inputs of nodes, or of an operator's nodes, that stay float32");
  add_list(app, "--exclude-region", options.model.excluded_regions, "FROM TO",
           "All that lies on a way from one value to another stays float32");
  add_list(app, "--without-pin", options.model.without_pins, "PIN",
           "Reasons for float32 that do not hold here, as the report names them")
      ->delimiter(',');
  app.add_flag("--allow-unknown", options.model.allow_unknown_ops,
               "Lists may name operators that nothing describes");
  add_list(app, "--custom-ops", options.model.custom_operators, "FILE",
           "Files that describe operators which ONNX does not know (docs/convert.md)");
  add_list(app, "--include", options.model.included_names, "NAME",
           "Nodes that go low: name, glob or /regex/");
}

void add_judges(CLI::App& app, ConvertOptions& options) {
  add_list(app, "--calibration", options.calibration, "FILE",
           "Samples: .npz, .npy or ONNX tensor files; may be repeated");
  add_value(app, "--headroom", options.model.headroom, "X",
            "How many times larger than on the samples values may become (4)");
  add_value(app, "--verify", options.model.verify, "none|load|run|compare",
            "What must be confirmed before OUT is written (load)");
  add_value(app, "--evaluator", options.model.evaluator, "PATH",
            "The built-in evaluator's library, or its folder; without: where Mezzo is");
  add_value(app, "--onnxruntime", options.model.onnxruntime, "PATH",
            "ONNX Runtime's library, or its folder; without: the system's");
  add_value(app, "--tolerance", options.tolerance, "X",
            "Largest error relative to an output's range; searches what must stay float32");
  add_value(app, "--check", options.model.check, "COMMAND",
            "A command that accepts a model ({}) by exit code 0; where it does not, what must "
            "stay float32 is searched");
  add_value(app, "--attempts", options.model.attempts, "N",
            "How many models a search may judge (80)");
  add_value(app, "--time-limit", options.time_limit, "SECONDS",
            "After how many seconds a search begins no other attempt");
}

void add_weights(CLI::App& app, ConvertOptions& options) {
  add_value(app, "--cast-optional-params", options.cast_weights, "BOOL",
            "Store weights low, or behind Casts (true)");
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
  add_list(app, "--input", options.inputs, "[NAME=]SHAPE[:DTYPE]",
           "In order or by name, as 1x3x224x224, data=1,3,224,224 or 1x128:int64. TorchScript: an "
           "input to compare both modules on; from MXNet to ONNX: the shape of data, 0 where a "
           "size changes");
  add_value(app, "--params", options.params, "FILE", "The parameters of a graph of MXNet");
  app.add_flag("--remove-amp-cast", options.remove_amp_cast,
               "MXNet: take casts out again, all parameters float32");
}

void add_results(CLI::App& app, ConvertOptions& options) {
  add_value(app, "--plan", options.plan, "FILE",
            "Apply this plan, which stands for all that decides");
  add_value(app, "--plan-out", options.plan_out, "FILE", "Write the plan; without -o nothing else");
  add_list(app, "--report", options.reports, "FILE.json|.html", "Write the whole report");
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
  add_value(app, "-o,--output", options.out, "OUT",
            "The model to write; the input is never overwritten");
  add_value(app, "--dtype", options.model.target_dtype, low_type_names("|"),
            "The 16-bit type (float16); float32 from MXNet to ONNX");
  add_value(app, "--io", options.model.io, "keep|low",
            "Inputs and outputs keep their types, or go low (keep)");
  add_list(app, "--io-of", options.io_of, "NAME=DTYPE", "The type of one input or output");
  add_value(app, "--profile", options.model.profile,
            "portable|spec|ort|ort-cpu|ort-cuda|trt|openvino",
            "What the target runs in 16 bits (portable: the standard, but\nfor what ONNX "
            "Runtime joins wrongly)");
  add_value(app, "--opset", options.model.opset, "keep|auto|N",
            "Keep, raise where it helps, or a number (keep)");
  add_under("Which parts go low", app, options, add_policy);
  add_under("Weights and constants", app, options, add_weights);
  add_under("Samples and judges", app, options, add_judges);
  add_under("Other formats", app, options, add_formats);
  add_under("Plan and report", app, options, add_results);
}

}  // namespace mezzo::cli
