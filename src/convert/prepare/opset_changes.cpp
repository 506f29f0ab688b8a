#include "convert/prepare/opset_changes.h"

#include <algorithm>
#include <cmath>

#include "convert/onnx/concat.h"
#include "convert/onnx/element.h"
#include "convert/onnx/fields.h"
#include "convert/prepare/old_opsets.h"

namespace mezzo::convert {
namespace {

// An adapter rewrites one node so that it means under opset `at` what it meant before. Returns why
// it cannot, or an empty text.
using Adapter = std::string (*)(NodeEdit&);

std::string batch_norm_9(NodeEdit& node) {
  if (node.integer("spatial", 1) == 0) return "is not spatial";
  node.remove("spatial");
  return "";
}

std::string batch_norm_14(NodeEdit& node) {
  return node.output_count() > 1 ? "has training outputs" : "";
}

std::string scan_9(NodeEdit& node) {
  if (!node.input(0).empty()) return "is told how long each sequence is";
  return node.scan_batch() ? "" : "has no body";
}

// The mask became boolean.
std::string dropout_10(NodeEdit& node) {
  if (node.output_count() < 2) return "";
  if (!node.is_read(1)) {
    node.keep_outputs(1);
    return "";
  }
  const auto element = node.element(1);
  if (!element) return "has a mask, whose type changed and is not known";
  node.cast_output(1, *element);
  return "";
}

// In inference the ratio does not matter.
std::string dropout_12(NodeEdit& node) {
  if (node.find("is_test") != nullptr) {
    node.remove("is_test");
    if (node.find("ratio") == nullptr) node.set_float("ratio", 0.5F);
    node.attribute_to_scalar_input("ratio", 1);
    node.set_input(2, node.truth());
  }
  node.remove("ratio");
  return "";
}

std::string flattening(NodeEdit& node) {
  if (node.integer("axis", 1) == -1) return "";  // the last axis alone, either way
  if (node.output_count() == 0) return "has no output";
  node.flatten_around(node.integer("axis", 1));
  return "";
}

std::string clip_11(NodeEdit& node) {
  const bool has_max = node.find("max") != nullptr;
  if (node.find("min") != nullptr) {
    node.attribute_to_input("min", 1);
  } else if (has_max) {
    node.set_input(1, "");
  }
  if (has_max) node.attribute_to_input("max", 2);
  return "";
}

std::string pad_11(NodeEdit& node) {
  node.attribute_to_input("pads", 1);
  if (node.find("value") != nullptr) node.attribute_to_input("value", 2);
  return "";
}

std::string slice_10(NodeEdit& node) {
  node.attribute_to_input("starts", 1);
  node.attribute_to_input("ends", 2);
  if (node.find("axes") != nullptr) node.attribute_to_input("axes", 3);
  return "";
}

std::string topk_10(NodeEdit& node) {
  node.attribute_to_list_input("k", 1);
  return "";
}

std::string axes_to_input(NodeEdit& node) {
  if (node.find("axes") != nullptr) node.attribute_to_input("axes", 1);
  return "";
}

std::string split_13(NodeEdit& node) {
  if (node.find("split") != nullptr) node.attribute_to_input("split", 1);
  return "";
}

std::string split_18(NodeEdit& node) {
  if (node.input(1).empty())
    node.set_integer("num_outputs", static_cast<std::int64_t>(node.output_count()));
  return "";
}

std::string scatter_11(NodeEdit& node) {
  node.set_op("ScatterElements");
  return "";
}

std::string upsample_9(NodeEdit& node) {
  node.attribute_to_input("scales", 1);
  return "";
}

std::string upsample_10(NodeEdit& node) {
  node.set_op("Resize");
  return "";
}

std::string resize_11(NodeEdit& node) {
  const std::string_view scales = node.input(1);
  node.set_input(2, scales);
  node.set_input(1, node.empty_floats());
  node.set_text("coordinate_transformation_mode", "asymmetric");
  if (node.text("mode") != "linear") node.set_text("nearest_mode", "floor");
  return "";
}

// With x = (i + 0.5) / scale, floor(x) is floor((x - 0.5) + 0.5), and ceil(x - 0.5) is the ceiling
// of what half_pixel gives.
std::string resize_13(NodeEdit& node) {
  if (node.text("coordinate_transformation_mode") != "tf_half_pixel_for_nn") return "";
  const std::string_view mode = node.text("mode");
  const std::string_view rounding = node.text("nearest_mode");
  const bool prefers_floor = rounding.empty() || rounding == "round_prefer_floor";
  if ((!mode.empty() && mode != "nearest") || (rounding != "floor" && !prefers_floor))
    return "uses tf_half_pixel_for_nn, which is no more, and rounds up or not at all";
  node.set_text("coordinate_transformation_mode", "half_pixel");
  node.set_text("nearest_mode", prefers_floor ? "ceil" : "round_prefer_ceil");
  return "";
}

std::string roi_align_16(NodeEdit& node) {
  if (node.find("coordinate_transformation_mode") == nullptr) {
    node.set_text("coordinate_transformation_mode", "output_half_pixel");
  }
  return "";
}

std::string group_norm_21(NodeEdit& node) {
  const std::int64_t groups = node.integer("num_groups", 0);
  if (groups < 1) return "has no groups";
  node.repeat_per_channel(1, groups);
  node.repeat_per_channel(2, groups);
  return "";
}

std::string grid_sample_20(NodeEdit& node) {
  if (node.text("mode") == "bilinear") node.set_text("mode", "linear");
  if (node.text("mode") == "bicubic") node.set_text("mode", "cubic");
  return "";
}

std::string dft_20(NodeEdit& node) {
  node.set_integer("axis", node.integer("axis", 1));
  if (node.input(1).empty()) node.set_input(1, "");
  node.attribute_to_scalar_input("axis", 2);
  return "";
}

struct Change {
  std::string_view op;
  int at;
  Adapter adapt;
};

// Where an operator's meaning or form changed; everything else only gained types or defaults.
constexpr Change kChanges[] = {
    {"Abs", 6, drop_legacy},
    {"Add", 6, drop_legacy},
    {"Add", 7, drop_broadcast},
    {"And", 7, drop_broadcast},
    {"BatchNormalization", 7, batch_norm_7},
    {"BatchNormalization", 9, batch_norm_9},
    {"BatchNormalization", 14, batch_norm_14},
    {"Cast", 6, cast_6},
    {"Ceil", 6, drop_legacy},
    {"Clip", 6, drop_legacy},
    {"Clip", 11, clip_11},
    {"Concat", 4, concat_4},
    {"DFT", 20, dft_20},
    {"Div", 6, drop_legacy},
    {"Div", 7, drop_broadcast},
    {"Dropout", 6, drop_legacy},
    {"Dropout", 7, dropout_7},
    {"Dropout", 10, dropout_10},
    {"Dropout", 12, dropout_12},
    {"Elu", 6, drop_legacy},
    {"Equal", 7, drop_broadcast},
    {"Exp", 6, drop_legacy},
    {"Floor", 6, drop_legacy},
    {"GRU", 7, recurrent_7},
    {"Gemm", 7, drop_broadcast},
    {"GlobalLpPool", 2, lp_pool_2},
    {"Greater", 7, drop_broadcast},
    {"GridSample", 20, grid_sample_20},
    {"GroupNormalization", 21, group_norm_21},
    {"HardSigmoid", 6, drop_legacy},
    {"Hardmax", 13, flattening},
    {"InstanceNormalization", 6, drop_legacy},
    {"LSTM", 7, recurrent_7},
    {"LeakyRelu", 6, drop_legacy},
    {"Less", 7, drop_broadcast},
    {"Log", 6, drop_legacy},
    {"LogSoftmax", 13, flattening},
    {"LpPool", 2, lp_pool_2},
    {"Max", 6, drop_legacy},
    {"Mean", 6, drop_legacy},
    {"Min", 6, drop_legacy},
    {"Mul", 6, drop_legacy},
    {"Mul", 7, drop_broadcast},
    {"Neg", 6, drop_legacy},
    {"Or", 7, drop_broadcast},
    {"PRelu", 6, drop_legacy},
    {"PRelu", 7, prelu_7},
    {"Pad", 2, pad_2},
    {"Pad", 11, pad_11},
    {"Pow", 7, drop_broadcast},
    {"RNN", 7, recurrent_7},
    {"Reciprocal", 6, drop_legacy},
    {"ReduceL1", 18, axes_to_input},
    {"ReduceL2", 18, axes_to_input},
    {"ReduceLogSum", 18, axes_to_input},
    {"ReduceLogSumExp", 18, axes_to_input},
    {"ReduceMax", 18, axes_to_input},
    {"ReduceMean", 18, axes_to_input},
    {"ReduceMin", 18, axes_to_input},
    {"ReduceProd", 18, axes_to_input},
    {"ReduceSum", 13, axes_to_input},
    {"ReduceSumSquare", 18, axes_to_input},
    {"Relu", 6, drop_legacy},
    {"Reshape", 5, reshape_5},
    {"Resize", 11, resize_11},
    {"Resize", 13, resize_13},
    {"RoiAlign", 16, roi_align_16},
    {"Scan", 9, scan_9},
    {"Scatter", 11, scatter_11},
    {"Selu", 6, selu_6},
    {"Sigmoid", 6, drop_legacy},
    {"Slice", 10, slice_10},
    {"Softmax", 13, flattening},
    {"Split", 2, split_2},
    {"Split", 13, split_13},
    {"Split", 18, split_18},
    {"Sqrt", 6, drop_legacy},
    {"Squeeze", 13, axes_to_input},
    {"Sub", 6, drop_legacy},
    {"Sub", 7, drop_broadcast},
    {"Sum", 6, drop_legacy},
    {"Tanh", 6, drop_legacy},
    {"Tile", 6, tile_6},
    {"TopK", 10, topk_10},
    {"Unsqueeze", 13, axes_to_input},
    {"Upsample", 7, upsample_7},
    {"Upsample", 9, upsample_9},
    {"Upsample", 10, upsample_10},
    {"Xor", 7, drop_broadcast},
};

const Change* find_change(std::string_view op, int at) {
  const auto found =
      std::ranges::find_if(kChanges, [&](const Change& c) { return c.op == op && c.at == at; });
  return found == std::end(kChanges) ? nullptr : found;
}

}  // namespace

std::string adapt(NodeEdit& node, int at) {
  const Change* change = find_change(node.op(), at);
  return change == nullptr ? "" : change->adapt(node);
}

bool is_changed(std::string_view op, int at) {
  return find_change(op, at) != nullptr;
}

}  // namespace mezzo::convert
