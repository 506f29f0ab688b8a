// The operator table, part: operators that nobody lists and that want one type or hold a scalar.
// The sweep over the dispatcher finds them.
#pragma once

#include <array>

#include "operators/rows/row.h"

namespace mezzo::rows {

inline constexpr std::string_view kOneType = "its arguments must have one type";
inline constexpr std::string_view kHeldScalar =
    "its scalars take the type of the tensor, which must be able to hold them";

inline constexpr std::array kOneTypeRows{
    row("_adaptive_avg_pool2d_backward", kPromote, "----", kOneType),
    row("_adaptive_avg_pool3d_backward", kPromote, "----", kOneType),
    row("_chunk_cat", kPromote, "----", kOneType),
    row("_embedding_bag", kPromote, "----", kOneType),
    row("_embedding_bag_forward_only", kPromote, "----", kOneType),
    row("_foreach_lerp.List", kPromote, "----", kOneType),
    row("_foreach_lerp.Scalar", kPromote, "----", kOneType),
    row("_foreach_lerp.ScalarList", kPromote, "----", kOneType),
    row("_index_put_impl", kPromote, "----", kOneType),
    row("_log_softmax_backward_data", kPromote, "----", kOneType),
    row("_masked_softmax_backward", kPromote, "----", kOneType),
    row("_prelu_kernel", kPromote, "----", kOneType),
    row("_prelu_kernel_backward", kPromote, "----", kOneType),
    matrix(row("_scaled_dot_product_flash_attention_for_cpu", kPromote, "----", kOneType)),
    row("_segment_reduce_backward", kPromote, "----", kOneType),
    row("_softmax_backward_data", kPromote, "----", kOneType),
    matrix(row("_trilinear", kPromote, "----", kOneType)),
    row("_unsafe_index_put", kPromote, "----", kOneType),
    guarded(row("_unsafe_masked_index", kNeutral, "----", kHeldScalar)),
    row("_unsafe_masked_index_put_accumulate", kPromote, "----", kOneType),
    row("_weight_norm", kPromote, "----", kOneType),
    row("_weight_norm_interface", kPromote, "----", kOneType),
    row("adaptive_max_pool2d_backward", kPromote, "----", kOneType),
    row("adaptive_max_pool3d_backward", kPromote, "----", kOneType),
    row("binary_cross_entropy_backward", kPromote, "----", kOneType),
    guarded(row("bucketize.Scalar", kNeutral, "----", kHeldScalar)),
    row("cartesian_prod", kPromote, "----", kOneType),
    guarded(row("clamp_max", kNeutral, "----", kHeldScalar)),
    guarded(row("clamp_max.Tensor", kNeutral, "----", kHeldScalar)),
    guarded(row("clamp_min", kNeutral, "----", kHeldScalar)),
    guarded(row("clamp_min.Tensor", kNeutral, "----", kHeldScalar)),
    row("cummaxmin_backward", kPromote, "----", kOneType),
    guarded(row("cumulative_trapezoid.dx", kNeutral, "----", kHeldScalar)),
    row("embedding_bag", kPromote, "----", kOneType),
    row("embedding_bag.padding_idx", kPromote, "----", kOneType),
    row("glu_backward", kPromote, "----", kOneType),
    guarded(row("hardshrink", kNeutral, "----", kHeldScalar)),
    guarded(row("hardtanh", kNeutral, "----", kHeldScalar)),
    guarded(row("heaviside", kPromote, "----", kOneType)),
    row("huber_loss_backward", kPromote, "----", kOneType),
    guarded(row("index_fill.int_Scalar", kNeutral, "----", kHeldScalar)),
    guarded(row("index_fill.int_Tensor", kNeutral, "----", kHeldScalar)),
    row("index_reduce", kPromote, "----", kOneType),
    matrix(row("inner", kPromote, "----", kOneType)),
    row("isclose", kPromote, "----", kOneType),
    guarded(row("isin.Scalar_Tensor", kNeutral, "----", kHeldScalar)),
    guarded(row("isin.Tensor_Scalar", kNeutral, "----", kHeldScalar)),
    guarded(row("linspace.Scalar_Tensor", kNeutral, "----", kHeldScalar)),
    guarded(row("linspace.Tensor_Scalar", kNeutral, "----", kHeldScalar)),
    row("log_sigmoid_backward", kPromote, "----", kOneType),
    guarded(row("logspace.Scalar_Tensor", kNeutral, "----", kHeldScalar)),
    guarded(row("logspace.Tensor_Scalar", kNeutral, "----", kHeldScalar)),
    row("masked_select_backward", kPromote, "----", kOneType),
    row("max_pool3d_with_indices_backward", kPromote, "----", kOneType),
    row("mse_loss_backward", kPromote, "----", kOneType),
    row("native_layer_norm_backward", kPromote, "----", kOneType),
    guarded(row("new_full", kNeutral, "----", kHeldScalar)),
    row("nll_loss_backward", kPromote, "----", kOneType),
    row("nll_loss_forward", kPromote, "----", kOneType),
    row("put", kPromote, "----", kOneType),
    row("reflection_pad1d_backward", kPromote, "----", kOneType),
    row("reflection_pad2d_backward", kPromote, "----", kOneType),
    row("reflection_pad3d_backward", kPromote, "----", kOneType),
    row("replication_pad1d_backward", kPromote, "----", kOneType),
    row("replication_pad2d_backward", kPromote, "----", kOneType),
    row("replication_pad3d_backward", kPromote, "----", kOneType),
    row("scatter_reduce.two", kPromote, "----", kOneType),
    guarded(row("softshrink", kNeutral, "----", kHeldScalar)),
    guarded(row("special_xlog1py.other_scalar", kNeutral, "----", kHeldScalar)),
    guarded(row("special_xlog1py.self_scalar", kNeutral, "----", kHeldScalar)),
    guarded(row("special_xlogy.other_scalar", kNeutral, "----", kHeldScalar)),
    guarded(row("special_xlogy.self_scalar", kNeutral, "----", kHeldScalar)),
    guarded(row("threshold", kNeutral, "----", kHeldScalar)),
    guarded(row("trapezoid.dx", kNeutral, "----", kHeldScalar)),
    guarded(row("xlogy.Scalar_Other", kNeutral, "----", kHeldScalar)),
    guarded(row("xlogy.Scalar_Self", kNeutral, "----", kHeldScalar)),
};

}  // namespace mezzo::rows
