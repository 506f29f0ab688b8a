// Operators of MXNet, and what programs on LibTorch call for them besides the ATen operators that
// do the same work by themselves: other shapes of arguments, other spellings. A caller's list that
// names the one means the others, unless it names them otherwise; the default lists do not.
#pragma once

#include <string_view>

namespace mezzo::gluon {

struct CalledOperators {
  std::string_view operators;  // names of the dispatcher, separated by spaces
  std::string_view names;      // MXNet's
};

inline constexpr CalledOperators kCalledOperators[] = {
    {"addmv", "FullyConnected _sparse_FullyConnected"},
    {"addmm addbmm", "_linalg_gemm linalg_gemm"},
    {"amax", "max"},
    {"amin", "min"},
    {"conv_tbc cudnn_convolution", "Convolution Convolution_v1"},
    {"cudnn_convolution_transpose", "Deconvolution"},
    {"div.Tensor_mode true_divide.Tensor",
     "_Div _div _npi_true_divide _sparse_broadcast_div _sparse_elemwise_div broadcast_div "
     "elemwise_div"},
    {"div.Scalar_mode true_divide.Scalar", "_DivScalar _div_scalar _npi_true_divide_scalar"},
    {"linalg_cross", "_npi_cross"},
    {"linalg_vecdot tensordot vdot", "_npi_dot _sparse_dot dot"},
    {"linalg_vector_norm linalg_norm linalg_matrix_norm frobenius_norm nuclear_norm",
     "L2Normalization _sparse_norm norm"},
    {"matmul baddbmm",
     "_contrib_interleaved_matmul_encdec_qk _contrib_interleaved_matmul_encdec_valatt "
     "_contrib_interleaved_matmul_selfatt_qk _contrib_interleaved_matmul_selfatt_valatt "
     "batch_dot"},
    {"max.other", "_Maximum _maximum broadcast_maximum"},
    {"min.other", "_Minimum _minimum broadcast_minimum"},
    {"mm bmm", "_linalg_syrk _linalg_trmm linalg_syrk linalg_trmm"},
    {"mm bmm mv dot linalg_matmul", "_npi_matmul"},
    {"mm matmul", "_linalg_gemm2 linalg_gemm2"},
    {"native_batch_norm _batch_norm_impl_index cudnn_batch_norm", "BatchNorm BatchNorm_v1"},
    {"native_group_norm", "GroupNorm"},
    {"native_layer_norm", "LayerNorm"},
    {"special_log_softmax", "log_softmax"},
    {"special_softmax", "Softmax SoftmaxActivation SoftmaxOutput softmax softmin"},
};

}  // namespace mezzo::gluon
