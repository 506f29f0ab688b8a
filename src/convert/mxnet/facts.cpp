#include "convert/mxnet/facts.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "convert/mxnet/numpy_operators.h"
#include "operators/mxnet_lists_table.h"

namespace mezzo::convert::mxnet {
namespace {

template <std::size_t N>
bool is_one_of(std::string_view op, const std::array<std::string_view, N>& names) {
  return std::ranges::find(names, op) != names.end();
}

constexpr std::array<std::string_view, 5> kBatchNorms{
    "BatchNorm", "BatchNorm_v1", "BatchNormWithReLU", "CuDNNBatchNorm", "_contrib_SyncBatchNorm"};

// The first input is the data, the others are only looked at.
constexpr std::array<std::string_view, 22> kFirstIsData{"take",
                                                        "pick",
                                                        "gather_nd",
                                                        "batch_take",
                                                        "SequenceMask",
                                                        "SequenceLast",
                                                        "SequenceReverse",
                                                        "slice_like",
                                                        "broadcast_like",
                                                        "reshape_like",
                                                        "_contrib_BilinearResize2D",
                                                        "_contrib_boolean_mask",
                                                        "SoftmaxOutput",
                                                        "LinearRegressionOutput",
                                                        "LogisticRegressionOutput",
                                                        "MAERegressionOutput",
                                                        "SVMOutput",
                                                        "softmax",
                                                        "masked_softmax",
                                                        "masked_log_softmax",
                                                        "_contrib_index_copy",
                                                        "scatter_nd"};

// Their results are indices, or of a type that an attribute names.
constexpr std::array<std::string_view, 26> kOwnType{"argmax",
                                                    "argmin",
                                                    "argmax_channel",
                                                    "argsort",
                                                    "topk",
                                                    "one_hot",
                                                    "shape_array",
                                                    "size_array",
                                                    "Cast",
                                                    "_arange",
                                                    "_contrib_arange_like",
                                                    "_zeros",
                                                    "_zeros_without_dtype",
                                                    "_ones",
                                                    "_full",
                                                    "_eye",
                                                    "_linspace",
                                                    "_random_uniform",
                                                    "_random_normal",
                                                    "_contrib_quantize",
                                                    "_contrib_quantize_v2",
                                                    "_contrib_dequantize",
                                                    "_contrib_requantize",
                                                    "_ravel_multi_index",
                                                    "_unravel_index",
                                                    "_histogram"};

std::uint32_t number(const Node& node, std::string_view key, std::uint32_t otherwise) {
  const auto text = node.attr(key);
  std::uint32_t value = otherwise;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return std::clamp<std::uint32_t>(value, 1, 1U << 16);
}

bool is_true(const Node& node, std::string_view key) {
  const auto text = node.attr(key);
  return text && (*text == "True" || *text == "true" || *text == "1");
}

}  // namespace

Role role_of(const Node& node, std::size_t input) {
  const std::string_view op = classic_name(node.op);
  if (is_one_of(op, kBatchNorms)) {
    if (input == 0) return Role::kData;
    return input < 3 ? Role::kFloat : Role::kStatistic;
  }
  if (op == "IdentityAttachKLSparseReg" && input == 1) return Role::kStatistic;
  if (op == "Embedding" || op == "where" || op.starts_with("_npi_where"))
    return input == 0 ? Role::kOwn : Role::kData;
  if (op == "RNN") {
    const bool has_length = is_true(node, "use_sequence_length");
    return has_length && input + 1 == node.inputs.size() ? Role::kOwn : Role::kData;
  }
  return input > 0 && is_one_of(op, kFirstIsData) ? Role::kOwn : Role::kData;
}

std::uint32_t output_count(const Node& node) {
  const std::string_view op = classic_name(node.op);
  if (op == "amp_multicast" || op == "SliceChannel" || op == "_split_v2")
    return number(node, "num_outputs", 1);
  if (is_one_of(op, kBatchNorms) || op == "LayerNorm" || op == "GroupNorm" || op == "InstanceNorm")
    return 3;
  if (op == "Dropout" || op == "LRN" || op == "L2Normalization" || op == "moments") return 2;
  if (op == "RNN") {
    const std::string_view mode = node.attr("mode").value_or("");
    return !is_true(node, "state_outputs") ? 1 : mode == "lstm" ? 3 : 2;
  }
  return 1;
}

bool disables_amp(const Node& node) {
  const std::string_view text = node.attr("__opt_constraint__").value_or("");
  unsigned bits = 0;
  std::from_chars(text.data(), text.data() + text.size(), bits);
  return (bits & 1U) != 0;
}

bool has_type_of_its_own(std::string_view op) {
  const NumpyOperator* row = find_numpy_operator(op);
  return is_one_of(classic_name(op), kOwnType) || (row != nullptr && row->classes[0] == 'o');
}

bool has_one_type(const Node& node) {
  const std::string_view op = classic_name(node.op);
  const bool names_a_type = node.attr("dtype").value_or("None") != "None";
  if (!node.subgraphs.empty() || has_type_of_its_own(node.op) || op == "Custom" || names_a_type)
    return op == "Embedding";
  return find_numpy_operator(op) != nullptr ||
         std::ranges::find(kMxnetLists, op, &ListedOperator::name) != std::end(kMxnetLists);
}

}  // namespace mezzo::convert::mxnet
