// mezzo/convert.h: a mixed-precision ONNX model from a float32 one, ahead of time.
//
//   mezzo::convert::Options options;
//   options.cast_optional_params = true;                       // store weights in 16 bits
//   auto result = mezzo::convert::convert_model("net.onnx", "net16.onnx", options);
//   log(result.report.to_text());
//
// The result is always a valid model: it passes a strict type check of every scope before it
// replaces the target. Casts stand explicitly in the graph, so that TensorRT 11, ONNX Runtime,
// OpenVINO and others compute what was decided here. Needs no LibTorch. Functions may be called
// from several threads at once; the objects are plain values.
//
// The vocabulary is that of MXNet's convert_model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mezzo/export.h"

namespace mezzo::convert {

/// The operator stays float where the attribute (or, left out, its default) has one of the values,
/// written as text: {"Resize", "mode", {"cubic"}}.
struct Conditional {
  std::string op, attribute;
  std::vector<std::string> values;
};

struct Decision;

/// The model and how to convert it. Names of operators are ONNX's.
struct Options {
  /// "float16" or "bfloat16".
  std::string target_dtype = "float16";
  /// Operators that run in the target type, in float32, in the widest type among their inputs.
  /// Given lists replace the default list of their class; entries "+Op" and "-Op" edit it instead.
  std::optional<std::vector<std::string>> target_dtype_ops = {}, fp32_ops = {},
                                          widest_dtype_ops = {};
  std::optional<std::vector<Conditional>> conditional_fp32_ops = {};
  /// Nodes by name that stay float32, or go low: exact, a glob with * and ?, or /regex/.
  std::vector<std::string> excluded_names = {}, included_names = {};
  /// Values that stay float32 wherever they are made and read, by name as above.
  std::vector<std::string> excluded_tensors = {};
  /// Inputs that stay float32, with whatever must have their type, as NODE:INDEX or OP:INDEX, the
  /// node by name as above, indices from 0: "head:1", "Gather:0". Other inputs stay undecided.
  std::vector<std::string> excluded_inputs = {};
  /// Regions that stay float32: the nodes on every way from the first value to the second, both by
  /// name as above, through bodies and functions too.
  std::vector<std::pair<std::string, std::string>> excluded_regions = {};
  /// Files that describe operators which the standard does not know: what they take and give, and
  /// their class. Those of ONNX Runtime are known. Undescribed ones stay float32.
  std::vector<std::filesystem::path> custom_operators = {};
  /// Lists may name operators that neither the standard nor such a file knows: a warning then.
  bool allow_unknown_ops = false;
  /// false: weights stay float32 behind Casts; true: stored in the target type where every use is.
  bool cast_optional_params = false;
  /// "keep" (inputs and outputs keep their types) or "low".
  std::string io = "keep";
  /// Per input or output: "float32" or the target type.
  std::map<std::string, std::string> io_of = {};
  /// The operators that the target runs in 16 bits: "spec" (all that the standard allows),
  /// "portable" (the same, but for what ONNX Runtime has no kernel for or joins wrongly, so that it
  /// loads and runs the result),
  /// "ort", "ort-cpu", "ort-cuda", "trt", "openvino".
  std::string profile = "portable";
  /// "keep" (models below opset 7 are raised to 7 where anything goes low), "auto" (raised where
  /// that lowers more nodes), or a number that is not below the model's.
  std::string opset = "keep";
  /// Samples (.npz, .npy, or ONNX tensor files) on which value ranges are measured.
  std::vector<std::filesystem::path> calibration = {};
  /// A value that is this many times larger than on the samples must still be finite; at least 1.
  double headroom = 4;
  /// "none", "load" (ONNX Runtime loads it), "run" (no output stops being finite) or "compare" (and
  /// agrees with the original: on samples, what must stay float32 for that is searched, as with
  /// `tolerance`): what must be confirmed before the target is written. The judge of
  /// "run", "compare", `calibration` and `tolerance` is the built-in evaluator on LibTorch or,
  /// where that is not installed or does not know an operator, ONNX Runtime; without either they
  /// fail. "load" is passed over where ONNX Runtime is not installed.
  std::string verify = "load";
  /// The largest error, relative to an output's range, that "compare" accepts; setting it starts a
  /// search for the smallest part that must stay float32. The search's verdicts are kept in the
  /// target's name + ".search" until it ends, so that an interrupted one goes on where it stopped.
  std::optional<double> tolerance = {};
  /// A command that judges: run by /bin/sh with the path of a model in place of every {}, quoted;
  /// exit code 0 accepts. The model is a temporary file beside the target. Nothing is written that
  /// the command refuses: where it refuses the conversion, the smallest part that must stay float32
  /// is searched, as with `tolerance`, and with `tolerance` both must be content. Needs no other
  /// judge. Empty: none. The command inherits this process's environment and folder.
  std::string check = {};
  /// The budget of the search: judgements at most (at least 1), and seconds (after which no other
  /// one is begun). If it ends the search, what was found so far counts if it is good enough,
  /// the report says so, and what was judged is kept as above.
  int attempts = 80;
  std::optional<double> time_limit = {};
  /// The built-in evaluator's library (libmezzo_convert_torch.so), or the folder that has it;
  /// empty: where Mezzo is installed.
  std::filesystem::path evaluator = {};
  /// ONNX Runtime's library, or the folder that has it; empty: where the system has it.
  std::filesystem::path onnxruntime = {};
  /// Only stores weights in the target type; everything is computed in float32. The weights of
  /// nodes that `excluded_names`, `fp32_ops` or `conditional_fp32_ops` name stay float32
  /// altogether.
  bool weights_only = false;
  /// Weights, statistics and tables whose finite values leave the target type's range are clamped
  /// to its largest, where their readers would stay float32 otherwise; `Report::adjusted` lists
  /// each. Masks, factors and bounds are not: those readers stay float32.
  bool clamp_weights = false;
  /// A single number that keeps a divisor, or the operand of a root or a logarithm, from zero is
  /// raised to the target type's smallest normal value, where its reader would stay float32
  /// otherwise; `Report::adjusted` lists each.
  bool raise_epsilons = false;
  /// Batch normalizations of inference, whose parameters are constants, become part of the weights
  /// and the bias of the Conv, ConvTranspose, Gemm or MatMul before them, before anything is
  /// decided; `Report::batch_norms` lists each.
  bool fold_batch_norm = false;
  /// Pins that are left out, by name: reasons to keep something float32 that do not hold for this
  /// model ("powers"). `Decision::pin` names the one that decided.
  std::vector<std::string> without_pins = {};
  /// Asked about every type variable of every node, given by `node`, `key`, `op` and `variable`:
  /// true is low, false is float32, nothing leaves it to the rules. Weighs as much as a name in the
  /// lists above. Called from the converting thread, perhaps several times for each; what it throws
  /// ends the conversion.
  std::function<std::optional<bool>(const Decision&)> choose = {};
  /// Called from the converting thread with what is being done ("searching") and how much of that
  /// is done, 0 to 1. An exception from it ends the conversion.
  std::function<void(std::string_view, double)> progress = {};
};

/// The type of one type variable of one node, and why.
struct Decision {
  std::string node;  ///< where it is: scope path, name, operator
  /// Stable key: the name of the first output; in bodies and functions behind those of the nodes
  /// that hold it.
  std::string key;
  std::string op;
  std::string variable;  ///< the schema's name of the type variable: "T"
  bool low = false;
  std::string rule;  ///< who decided: "default", "list", "range", "name", "schema", "cut", ...
  std::string why;
  std::string otherwise;  ///< what stood against it, or what it would take; empty: nothing
  std::string pin =
      {};  ///< the reason's name, as Options::without_pins has it; empty: none of them
};

/// All decisions about one graph. Can be stored, compared as text, and applied to another
/// checkpoint of the same graph.
struct MEZZO_API Plan {
  std::string target_dtype = "float16";
  bool cast_optional_params = false;
  bool weights_only = false;
  bool clamp_weights = false;
  bool raise_epsilons = false;
  bool fold_batch_norm = false;
  std::string io = "keep";
  std::map<std::string, std::string> io_of = {};
  std::string opset = "keep";
  std::string structure;  ///< a hash of the graph without its weights
  std::vector<Decision> decisions = {};
  /// With `weights_only`: keys of the nodes whose weights stay float32 all the same.
  std::vector<std::string> float_weights = {};
  /// The texts of the files that describe custom operators.
  std::vector<std::string> custom_operators = {};

  /// The plan as text; from_json() reads it back.
  std::string to_json() const;
  /// Throws ConfigError if the text is no plan.
  static Plan from_json(std::string_view text);
};

/// How one output of the result differs from the original's.
struct OutputError {
  std::string name;
  double max_absolute = 0, relative_to_range = 0, sqnr_db = 0, cosine = 1, top1_agreement = 1;
  /// From the original's rows of the last dimension to the result's, in nats, the mean over rows:
  /// of the rows themselves where all are probabilities, else of their softmax.
  double kl_divergence = 0;
  bool finite = true;      ///< wherever the original's is
  bool same_shape = true;  ///< false: nothing else could be compared
};

/// The error that one node adds by itself, over the samples: its inputs are the float32 values,
/// rounded to the low type, its result is rounded, and compared with the float32 result.
struct LocalError {
  std::string key, node;  ///< as in Decision
  double sqnr_db = 0, relative_to_range = 0;
  bool finite = true;  ///< wherever the float32 result is
};

/// A Cast that was put into the graph.
struct CastReport {
  std::string value, scope, from, to;
  std::string reason;
};

/// A constant that was not only rounded.
struct AdjustedConstant {
  std::string constant, scope;
  std::string change;       ///< "clamped" or "raised"
  std::int64_t values = 0;  ///< how many of them were
  double from = 0, to = 0;  ///< the one of largest magnitude, and what it became
};

/// The outcome for one batch normalization, if they are folded.
struct BatchNormFold {
  std::string node;  ///< the batch normalization
  std::string into;  ///< the product that it became part of; empty: it stays
  std::string why;   ///< why it stays
};

/// The changes that were made to a model.
struct MEZZO_API Report {
  std::string input, output, target_dtype, profile;
  std::int64_t nodes = 0, float_nodes = 0, low_nodes = 0;
  std::int64_t heavy_nodes = 0, heavy_low_nodes = 0;  ///< convolutions, products, recurrent layers
  std::int64_t bytes_before = 0, bytes_after = 0;
  std::int64_t weights = 0, low_weights = 0, duplicated_weights = 0;
  std::int64_t flushed_values = 0;  ///< values of stored weights that became zero
  /// Values that became infinite: bounds of Clip, and what the options forced (with a warning).
  std::int64_t infinite_values = 0;
  std::vector<AdjustedConstant> adjusted = {};  ///< what the options clamped and raised
  std::vector<BatchNormFold> batch_norms = {};  ///< with `fold_batch_norm`: all of them
  std::int64_t opset_before = 0, opset_after = 0;
  /// With opset "keep": one in which more goes low, and by how many type variables; 0: none.
  std::int64_t better_opset = 0, low_in_better_opset = 0;
  bool unchanged = false;  ///< the output is the input, byte for byte
  std::vector<CastReport> casts = {};
  std::vector<Decision> decisions = {};
  std::vector<std::string> warnings = {};
  std::int64_t search_attempts = 0, kept_by_search = 0;  ///< of `tolerance` and `check`
  /// "attempts" or "time limit": the budget that ended the search; more may be kept than must be.
  std::string search_ended_by;
  std::string verified;                        ///< what was verified, by what
  std::vector<OutputError> errors = {};        ///< of the result, worst over the samples
  std::vector<OutputError> weight_floor = {};  ///< of rounding the weights alone
  /// The median and the 90 % quantile over the samples, number by number; from two samples on.
  std::vector<OutputError> median_errors = {}, q90_errors = {};
  /// Errors of the nodes that go low, or would but for the search, worst first; with samples and
  /// the built-in evaluator.
  std::vector<LocalError> local_errors = {};

  /// For a terminal, for programs, and as one self-contained page.
  std::string to_text() const;
  std::string to_json() const;
  std::string to_html() const;
};

/// The decisions and their outcome.
struct Result {
  Plan plan;
  Report report;
};

/// Converts the model in file `in` and writes `out` (and, where the model is large or had external
/// data, `out`'s name + ".data" beside it). The input is never written; the output appears whole or
/// not at all. Throws ConfigError for options that cannot be, Error for files that cannot be read,
/// UnsupportedError for models that cannot be treated.
MEZZO_API Result convert_model(const std::filesystem::path& in, const std::filesystem::path& out,
                               const Options& options = {});

/// The decisions alone; nothing is written.
MEZZO_API Plan plan_model(const std::filesystem::path& in, const Options& options = {});

/// The judges of a plan's result. The members are those of Options and mean the same, but
/// nothing is searched: what the judges do not accept is an Error, and not written.
struct Judges {
  std::string verify = "load";
  std::vector<std::filesystem::path> calibration = {};  ///< for "run", "compare" and the report
  std::optional<double> tolerance = {};
  std::string check = {};
  std::filesystem::path evaluator = {}, onnxruntime = {};
  std::function<void(std::string_view, double)> progress = {};
};

/// Applies the decisions of a plan to the same graph, or to another checkpoint of it, and lets
/// `judges` judge the result. Throws ConfigError if the graph is another one, or a weight does
/// not fit the type planned for it, Error if a judge does not accept the result.
MEZZO_API Result apply_plan(const std::filesystem::path& in, const std::filesystem::path& out,
                            const Plan& plan, const Judges& judges = {});

/// The content of a model file: types, operators, ranges, control flow, sizes.
struct MEZZO_API Inspection {
  std::string path;
  std::int64_t ir_version = 0;
  std::map<std::string, std::int64_t> opsets = {};
  std::int64_t nodes = 0, scopes = 0, functions = 0, deepest = 0, file_bytes = 0, weight_bytes = 0;
  std::map<std::string, std::int64_t> operators = {};    ///< "Conv" -> count
  std::map<std::string, std::int64_t> value_types = {};  ///< "tensor(float32)" -> count
  std::map<std::string, std::int64_t> weight_bytes_by_type = {};
  std::vector<std::string> inputs = {}, outputs = {};
  std::vector<std::string> ranges = {};    ///< weights that leave float16's range, one line each
  std::vector<std::string> findings = {};  ///< what the strict checker objects to

  /// For a terminal, and for programs.
  std::string to_text() const;
  std::string to_json() const;
};

/// Looks at a model without changing it. Throws Error if the file cannot be read or is no model.
MEZZO_API Inspection inspect_model(const std::filesystem::path& path);

/// The default lists, ONNX names, sorted: low, float32, neutral ("either"), and widest. `dtype` is
/// "float16" or "bfloat16".
MEZZO_API std::vector<std::string> list_lp16_ops(std::string_view dtype);
MEZZO_API std::vector<std::string> list_fp32_ops(std::string_view dtype);
MEZZO_API std::vector<std::string> list_lp16_fp32_ops(std::string_view dtype);
MEZZO_API std::vector<std::string> list_widest_type_cast(std::string_view dtype);
/// The default conditions, by operator.
MEZZO_API std::vector<Conditional> list_conditional_fp32_ops(std::string_view dtype);

}  // namespace mezzo::convert
