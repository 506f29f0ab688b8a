#include "convert/mxnet/numpy_operators.h"

#include <algorithm>
#include <map>

namespace mezzo::convert::mxnet {
namespace {

constexpr NumpyOperator kNumpyOperators[] = {
    // Other names of operators that numpy mode shares with the older one.
    {"_npx_activation", "Activation"},
    {"_npx_arange_like", "_contrib_arange_like"},
    {"_npx_batch_dot", "batch_dot"},
    {"_npx_batch_flatten", "Flatten"},
    {"_npx_batch_norm", "BatchNorm"},
    {"_npx_cast", "Cast"},
    {"_npx_convolution", "Convolution"},
    {"_npx_deconvolution", "Deconvolution"},
    {"_npx_dropout", "Dropout"},
    {"_npx_embedding", "Embedding"},
    {"_npx_erf", "erf"},
    {"_npx_fully_connected", "FullyConnected"},
    {"_npx_gather_nd", "gather_nd"},
    {"_npx_group_norm", "GroupNorm"},
    {"_npx_instance_norm", "InstanceNorm"},
    {"_npx_layer_norm", "LayerNorm"},
    {"_npx_leaky_relu", "LeakyReLU"},
    {"_npx_log_softmax", "log_softmax"},
    {"_npx_masked_log_softmax", "masked_log_softmax"},
    {"_npx_masked_softmax", "masked_softmax"},
    {"_npx_multibox_detection", "_contrib_MultiBoxDetection"},
    {"_npx_multibox_prior", "_contrib_MultiBoxPrior"},
    {"_npx_one_hot", "one_hot"},
    {"_npx_pick", "pick"},
    {"_npx_pooling", "Pooling"},
    {"_npx_reshape_like", "reshape_like"},
    {"_npx_rnn", "RNN"},
    {"_npx_roi_pooling", "ROIPooling"},
    {"_npx_sequence_mask", "SequenceMask"},
    {"_npx_shape_array", "shape_array"},
    {"_npx_slice", "slice"},
    {"_npx_smooth_l1", "smooth_l1"},
    {"_npx_softmax", "softmax"},
    {"_npx_topk", "topk"},
    // Functions of one operand.
    {"_npx_relu", "relu"},
    {"_npx_sigmoid", "sigmoid"},
    {"_npi_abs", "abs"},
    {"_npi_absolute", "abs"},
    {"_npi_arccos", "arccos"},
    {"_npi_arccosh", "arccosh"},
    {"_npi_arcsin", "arcsin"},
    {"_npi_arcsinh", "arcsinh"},
    {"_npi_arctan", "arctan"},
    {"_npi_arctanh", "arctanh"},
    {"_npi_cbrt", "cbrt"},
    {"_npi_ceil", "ceil"},
    {"_npi_clip", "clip"},
    {"_npi_cos", "cos"},
    {"_npi_cosh", "cosh"},
    {"_npi_degrees", "degrees"},
    {"_npi_exp", "exp"},
    {"_npi_expm1", "expm1"},
    {"_npi_fix", "fix"},
    {"_npi_floor", "floor"},
    {"_npi_log", "log"},
    {"_npi_log10", "log10"},
    {"_npi_log1p", "log1p"},
    {"_npi_log2", "log2"},
    {"_npi_negative", "negative"},
    {"_npi_radians", "radians"},
    {"_npi_reciprocal", "reciprocal"},
    {"_npi_rint", "rint"},
    {"_npi_sign", "sign"},
    {"_npi_sin", "sin"},
    {"_npi_sinh", "sinh"},
    {"_npi_sqrt", "sqrt"},
    {"_npi_square", "square"},
    {"_npi_tan", "tan"},
    {"_npi_tanh", "tanh"},
    {"_npi_trunc", "trunc"},
    {"_npi_copy", "_copy"},
    {"_np_copy", "_copy"},
    {"_npi_cast", "Cast"},
    // Functions of two.
    {"_npi_maximum", "broadcast_maximum"},
    {"_npi_minimum", "broadcast_minimum"},
    {"_npi_maximum_scalar", "_maximum_scalar"},
    {"_npi_minimum_scalar", "_minimum_scalar"},
    {"_npi_hypot", "broadcast_hypot"},
    {"_npi_hypot_scalar", "_hypot_scalar"},
    // Shapes.
    {"_npi_broadcast_to", "broadcast_to"},
    {"_npi_expand_dims", "expand_dims"},
    {"_npi_flip", "reverse"},
    {"_npi_gather_nd", "gather_nd"},
    {"_np_repeat", "repeat"},
    {"_npi_rnn_param_concat", "_rnn_param_concat"},
    {"_npi_slice", "slice"},
    {"_npi_split", "_split_v2"},
    {"_npi_squeeze", "squeeze"},
    {"_np_squeeze", "squeeze"},
    {"_npi_stack", "stack"},
    {"_npi_swapaxes", "SwapAxis"},
    {"_npi_take", "take"},
    {"_npi_tile", "tile"},
    {"_npi_transpose", "transpose"},
    {"_np_transpose", "transpose"},
    // Made from nothing.
    {"_npi_arange", "_arange"},
    {"_npi_full", "_full"},
    {"_npi_ones", "_ones"},
    {"_npi_zeros", "_zeros"},
    // Operators of their own: operands of different types are joined, and a whole sum has no
    // dimension.
    {"_npi_add", "", {'n', 'p'}},
    {"_npi_add_scalar", "", {'n', 'f'}},
    {"_npi_subtract", "", {'n', 'p'}},
    {"_npi_subtract_scalar", "", {'n', 'f'}},
    {"_npi_rsubtract_scalar", "", {'n', 'f'}},
    {"_npi_multiply", "", {'n', 'p'}},
    {"_npi_multiply_scalar", "", {'n', 'f'}},
    {"_npi_true_divide", "", {'n', 'p'}},
    {"_npi_true_divide_scalar", "", {'n', 'f'}},
    {"_npi_rtrue_divide_scalar", "", {'n', 'f'}},
    {"_npi_mod", "", {'n', 'f'}},
    {"_npi_mod_scalar", "", {'n', 'f'}},
    {"_npi_rmod_scalar", "", {'n', 'f'}},
    {"_npi_power", "", {'f', 'f'}},
    {"_npi_power_scalar", "", {'f', 'f'}},
    {"_npi_rpower_scalar", "", {'f', 'f'}},
    {"_npi_matmul", "", {'l', 'f'}},
    {"_npi_dot", "", {'p', 'p'}},
    {"_np_dot", "", {'p', 'p'}},
    {"_npi_einsum", "", {'l', 'f'}},
    {"_npi_concatenate", "", {'p', 'f'}},
    {"_npi_vstack", "", {'p', 'f'}},
    {"_npi_hstack", "", {'p', 'f'}},
    {"_np_reshape", "", {'n', 'f'}},
    {"_npx_reshape", "", {'n', 'n'}},
    {"_npi_reshape", "", {'n', 'n'}},
    {"_np_moveaxis", "", {'n', 'f'}},
    {"_npi_moveaxis", "", {'n', 'f'}},
    {"_npi_repeats", "", {'n', 'f'}},
    {"_npi_pad", "", {'n', 'f'}},
    {"_npi_where", "", {'p', 'n'}},
    {"_npi_where_lscalar", "", {'n', 'f'}},
    {"_npi_where_rscalar", "", {'n', 'f'}},
    {"_np_sum", "", {'f', 'n'}},
    {"_npi_sum", "", {'f', 'n'}},
    {"_npi_mean", "", {'f', 'n'}},
    {"_np_prod", "", {'f', 'f'}},
    {"_npi_prod", "", {'f', 'f'}},
    {"_np_max", "", {'n', 'f'}},
    {"_npi_max", "", {'n', 'f'}},
    {"_np_min", "", {'n', 'f'}},
    {"_npi_min", "", {'n', 'f'}},
    {"_npi_std", "", {'f', 'f'}},
    {"_npi_var", "", {'f', 'f'}},
    {"_npi_full_like", "", {'n', 'f'}},
    {"_npi_argmax", "", {'o', 'o'}},
    {"_npi_argmin", "", {'o', 'o'}},
    {"_npi_equal", "", {'o', 'o'}},
    {"_npi_equal_scalar", "", {'o', 'o'}},
    {"_npi_not_equal", "", {'o', 'o'}},
    {"_npi_not_equal_scalar", "", {'o', 'o'}},
    {"_npi_greater", "", {'o', 'o'}},
    {"_npi_greater_scalar", "", {'o', 'o'}},
    {"_npi_greater_equal", "", {'o', 'o'}},
    {"_npi_greater_equal_scalar", "", {'o', 'o'}},
    {"_npi_less", "", {'o', 'o'}},
    {"_npi_less_scalar", "", {'o', 'o'}},
    {"_npi_less_equal", "", {'o', 'o'}},
    {"_npi_less_equal_scalar", "", {'o', 'o'}},
    {"_npi_logical_and", "", {'o', 'o'}},
    {"_npi_logical_or", "", {'o', 'o'}},
    {"_npi_logical_xor", "", {'o', 'o'}},
    {"_npi_logical_not", "", {'o', 'o'}},
    {"masked_softmax", "", {'f', 'f'}},
    {"masked_log_softmax", "", {'f', 'f'}},
};

}  // namespace

std::span<const NumpyOperator> numpy_operators() {
  return kNumpyOperators;
}

const NumpyOperator* find_numpy_operator(std::string_view op) {
  static const std::map<std::string_view, const NumpyOperator*> kRows = [] {
    std::map<std::string_view, const NumpyOperator*> rows;
    for (const NumpyOperator& row : kNumpyOperators) rows.emplace(row.name, &row);
    return rows;
  }();
  const auto found = kRows.find(op);
  return found == kRows.end() ? nullptr : found->second;
}

std::string_view classic_name(std::string_view op) {
  const NumpyOperator* row = find_numpy_operator(op);
  return row == nullptr || row->classic.empty() ? op : row->classic;
}

}  // namespace mezzo::convert::mxnet
