// The operator table, part: products, convolutions, attention, recurrent layers.
#pragma once

#include <array>

#include "operators/rows/row.h"

namespace mezzo::rows {

inline constexpr std::string_view kProduct =
    "a sum of products: fast in 16 bits, summed in float by the hardware";
inline constexpr std::string_view kOuter =
    "an outer product: one multiplication an element, no sum";
inline constexpr std::string_view kConvolution =
    "a convolution is a sum of products: fast in 16 bits, summed in float by the hardware";
inline constexpr std::string_view kAttention =
    "two matrix products; the softmax between them is computed in float by the kernel";
inline constexpr std::string_view kRecurrent = "matrix products in every step";
inline constexpr std::string_view kGates =
    "the gates of a recurrent cell, which follow its matrix products";
inline constexpr std::string_view kPrelu =
    "one learned slope, no sum: keeps the type of the convolutions around it";
inline constexpr std::string_view kInner = "an inner product keeps what its widest argument has";

inline constexpr std::array kMatrixRows{
    guarded(matrix(row("_addmm_activation", kLow, "---l", kProduct))),
    matrix(row("_convolution", kLow, "-ll-", kConvolution)),
    matrix(row("_convolution.deprecated", kLow, "-lll", kConvolution)),
    matrix(row("_cudnn_rnn", kLow, "--l-", kRecurrent)),
    matrix(row("_native_multi_head_attention", kLow, "---l", kAttention)),
    matrix(row("_scaled_dot_product_flash_attention", kLow, "--l-", kAttention)),
    row("_thnn_fused_gru_cell", kLow, "--l-", kGates),
    row("_thnn_fused_lstm_cell", kLow, "--l-", kGates),
    sums(guarded(matrix(row("addbmm", kLow, "l-ll", kProduct)))),
    guarded(matrix(row("addmm", kLow, "l-ll", kProduct))),
    guarded(matrix(row("addmv", kLow, "l-l-", kProduct))),
    guarded(row("addr", kLow, "l-l-", kOuter)),
    guarded(matrix(row("baddbmm", kLow, "lfll", kProduct))),
    matrix(row("bilinear", kPromote, "p-p-", kInner)),
    matrix(row("bmm", kLow, "lpll", kProduct)),
    matrix(row("chain_matmul", kLow, "--l-", kProduct)),
    matrix(row("conv1d", kLow, "llll", kConvolution)),
    matrix(row("conv1d.padding", kLow, "ll-l", kConvolution)),
    matrix(row("conv2d", kLow, "llll", kConvolution)),
    matrix(row("conv2d.padding", kLow, "ll-l", kConvolution)),
    matrix(row("conv3d", kLow, "llll", kConvolution)),
    matrix(row("conv3d.padding", kLow, "ll-l", kConvolution)),
    matrix(row("conv_tbc", kLow, "l-ll", kConvolution)),
    matrix(row("conv_transpose1d", kLow, "llll", kConvolution)),
    matrix(row("conv_transpose2d.input", kLow, "llll", kConvolution)),
    matrix(row("conv_transpose3d.input", kLow, "llll", kConvolution)),
    matrix(row("convolution", kLow, "-ll-", kConvolution)),
    matrix(row("cudnn_convolution", kLow, "--l-", kConvolution)),
    matrix(row("cudnn_convolution_transpose", kLow, "--l-", kConvolution)),
    matrix(row("dot", kPromote, "ppp-", kInner)),
    matrix(row("einsum", kLow, "-ll-", kProduct)),
    matrix(row("gru.data", kLow, "ll--", kRecurrent)),
    matrix(row("gru.input", kLow, "ll--", kRecurrent)),
    matrix(row("gru_cell", kLow, "l-l-", kRecurrent)),
    matrix(row("linalg_matmul", kLow, "----", kProduct)),
    matrix(row("linalg_multi_dot", kLow, "--l-", kProduct)),
    matrix(row("linalg_vecdot", kLow, "--ll", kProduct)),
    matrix(row("linear", kLow, "llll", kProduct)),
    matrix(row("lstm.data", kLow, "ll--", kRecurrent)),
    matrix(row("lstm.input", kLow, "ll--", kRecurrent)),
    matrix(row("lstm_cell", kLow, "l-l-", kRecurrent)),
    matrix(row("matmul", kLow, "llll", kProduct)),
    matrix(row("mkldnn_rnn_layer", kLow, "---l", kRecurrent)),
    matrix(row("mm", kLow, "lpll", kProduct)),
    matrix(row("mv", kLow, "lpl-", kProduct)),
    row("prelu", kLow, "lnll", kPrelu),
    matrix(row("rnn_relu.data", kLow, "ll--", kRecurrent)),
    matrix(row("rnn_relu.input", kLow, "ll--", kRecurrent)),
    matrix(row("rnn_relu_cell", kLow, "l-l-", kRecurrent)),
    matrix(row("rnn_tanh.data", kLow, "ll--", kRecurrent)),
    matrix(row("rnn_tanh.input", kLow, "ll--", kRecurrent)),
    matrix(row("rnn_tanh_cell", kLow, "l-l-", kRecurrent)),
    matrix(row("scaled_dot_product_attention", kLow, "--ll", kAttention)),
    matrix(row("tensordot", kPromote, "-pp-", kInner)),
    matrix(row("vdot", kPromote, "--p-", kInner)),
};

}  // namespace mezzo::rows
