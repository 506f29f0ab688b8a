// From MXNet's files to ONNX: translated, then converted as any other model.
#include <algorithm>

#include "convert/engine/ort.h"
#include "convert/from_mxnet/rows.h"
#include "convert/from_mxnet/translate.h"
#include "convert/mxnet/check_checkpoint.h"
#include "convert/onnx/element.h"
#include "core/raise.h"
#include "mezzo/convert_mxnet.h"
#include "platform/files.h"
#include "platform/temporaries.h"

namespace mezzo::convert::mxnet {
namespace {

namespace fs = std::filesystem;

// The judgement of ONNX Runtime on a float32 model, as convert_model() asks it about others.
std::string verified_by_loading(const convert::Options& options, const fs::path& model) {
  if (options.verify == "none") return {};
  std::string why;
  const auto runtime = OrtRuntime::open(options.onnxruntime, &why);
  if (!runtime) return {};
  const std::string refusal = refusal_of(runtime, model);
  if (!refusal.empty())
    raise("mxnet", "ONNX Runtime ", runtime->version(), " does not load the result: ", refusal);
  return "loaded by ONNX Runtime " + runtime->version();
}

void check_float_options(const convert::Options& options) {
  const convert::Options plain;
  const bool asks_for_more = options.tolerance || !options.check.empty() || options.weights_only ||
                             options.io != plain.io || !options.io_of.empty() ||
                             options.fold_batch_norm || options.opset != plain.opset ||
                             (options.verify != "none" && options.verify != "load");
  if (asks_for_more) {
    raise<ConfigError>("mxnet",
                       "tolerance, check, weights_only, io, fold_batch_norm, opset, and verify "
                       "beyond loading, are for conversions to 16 bits; expected target_dtype "
                       "float16 or bfloat16 beside them");
  }
}

Result in_float(const OnnxWriter& writer, const fs::path& made, const fs::path& out,
                std::int64_t bytes, const convert::Options& options) {
  Result result;
  result.plan.target_dtype = "float32";
  Report& report = result.report;
  report.input = "mxnet";
  report.output = out.string();
  report.target_dtype = "float32";
  report.profile = options.profile;
  report.nodes = report.float_nodes = writer.node_count();
  report.weights = writer.constant_count();
  report.bytes_before = report.bytes_after = bytes;
  report.opset_before = report.opset_after = OnnxWriter::kOpset;
  report.verified = verified_by_loading(options, made);
  platform::replace_with_data(made, out);
  return result;
}

}  // namespace

Result to_onnx(const Checkpoint& checkpoint, const std::filesystem::path& out,
               const convert::Options& options, const InputShapes& input_shapes) {
  const bool is_float = parse_element(options.target_dtype) == Element::kFloat;
  if (is_float) check_float_options(options);
  OnnxWriter writer;
  translate(checkpoint, input_shapes, writer);
  check_checkpoint(checkpoint.symbol, checkpoint.arg_params, checkpoint.aux_params);
  tell_of_oddities({&checkpoint.symbol}, checkpoint.arg_params, checkpoint.aux_params);
  const auto folder = platform::folder_beside(out, "mxnet");
  const fs::path made = folder->path() / "float32.onnx";
  const std::int64_t bytes = writer.store(made);
  if (is_float) return in_float(writer, made, out, bytes, options);
  convert::Options with_constraints = options;
  // MXNet's files have no opset that could be kept.
  if (with_constraints.opset == "keep") with_constraints.opset = "auto";
  for (const std::string& name : writer.nodes_in_float())
    with_constraints.excluded_names.push_back(name);
  Result result = convert::convert_model(made, out, with_constraints);
  result.report.input = "mxnet";
  return result;
}

std::vector<std::string> list_onnx_ops() {
  const std::vector<std::string_view> names = translated_operators();
  std::vector<std::string> sorted(names.begin(), names.end());
  std::ranges::sort(sorted);
  return sorted;
}

}  // namespace mezzo::convert::mxnet
