// Operators of the operator table that are not translated to ONNX, and why. tests/deploy/ walks the
// operator table and fails for one that has neither a row nor a reason.
#include <array>

#include "core/words.h"
#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

struct Reason {
  std::string_view why;
  std::string_view names;  // separated by spaces
};

constexpr Reason kReasons[] = {
    {"it is another transform in disguise; call fft_irfft or fft_rfft of the conjugate",
     "fft_hfft fft_hfft2 fft_hfftn fft_ihfft fft_ihfft2 fft_ihfftn"},
    {"it belongs to sparse tensors, which ONNX's operators do not take",
     "_sparse_addmm _sparse_log_softmax _sparse_mm _sparse_mm_reduce_impl _sparse_softmax "
     "_sparse_sparse_matmul _spsolve hspmm smm sparse_mask sparse_sampled_addmm sspaddmm "
     "to_dense to_sparse"},
    {"it is random, and ONNX does not draw from its distribution",
     "_sample_dirichlet _standard_gamma binomial fractional_max_pool2d fractional_max_pool3d "
     "poisson rrelu_with_noise_functional"},
    {"it belongs to quantized tensors, which ONNX has operators of its own for",
     "dequantize quantize_per_tensor"},
    {"a special function that ONNX has no operator for",
     "digamma erfinv gcd lcm lgamma polygamma special_airy_ai special_bessel_j0 special_bessel_j1 "
     "special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t "
     "special_chebyshev_polynomial_u special_chebyshev_polynomial_v "
     "special_chebyshev_polynomial_w special_erfcx special_hermite_polynomial_h "
     "special_hermite_polynomial_he special_i1 special_i1e special_laguerre_polynomial_l "
     "special_legendre_polynomial_p special_log_ndtr special_modified_bessel_i0 "
     "special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 "
     "special_ndtri special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 "
     "special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u "
     "special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w "
     "special_spherical_bessel_j0 special_zeta"},
    {"a factorization or solution of equations, which ONNX has no operator for",
     "_cholesky_solve_helper _lu_with_info cholesky cholesky_inverse cholesky_solve geqrf "
     "inverse linalg_cholesky linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh "
     "linalg_eigvals linalg_eigvalsh _linalg_eigvals linalg_householder_product linalg_inv "
     "linalg_inv_ex linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq "
     "linalg_lu linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp "
     "linalg_matrix_rank linalg_pinv linalg_qr linalg_slogdet linalg_solve linalg_solve_ex "
     "linalg_solve_triangular linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve "
     "linalg_vander logdet lu_solve matrix_exp nuclear_norm orgqr ormqr pinverse qr slogdet svd "
     "triangular_solve"},
    {"a step of training, or a loss that ONNX has no operator for",
     "_batch_norm_impl_index _ctc_loss _fake_quantize_learnable_per_channel_affine "
     "_native_batch_norm_legit _thnn_fused_gru_cell _thnn_fused_lstm_cell batch_norm_elemt "
     "batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats ctc_loss "
     "fake_quantize_per_channel_affine_cachemask multi_margin_loss multilabel_margin_loss "
     "multilabel_margin_loss_forward nll_loss2d_forward nll_loss_forward"},
    {"LibTorch calls it inside another operator, which has a row",
     "_addmm_activation _cdist_forward _chunk_cat _cudnn_rnn _fft_r2c _euclidean_dist "
     "_foreach_lerp _fused_rms_norm _grid_sampler_2d_cpu_fallback _linalg_det _linalg_eigh "
     "_linalg_slogdet _linalg_solve_ex _linalg_svd _masked_softmax _pdist_forward "
     "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
     "_slow_conv2d_forward _trilinear _unsafe_index_put _unsafe_masked_index "
     "_unsafe_masked_index_put_accumulate cudnn_batch_norm cudnn_convolution "
     "cudnn_convolution_transpose miopen_batch_norm mkldnn_rnn_layer slow_conv3d "
     "slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d "
     "slow_conv_transpose3d thnn_conv2d as_strided_copy unfold_copy"},
    {"the length of its result follows from values, or its bins do",
     "_histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors bincount "
     "histc histogram histogramdd"},
    {"ONNX has no operator for it, and none that it is made of at all types and sizes",
     "cartesian_prod conv_tbc corrcoef cov cumulative_trapezoid kron nanquantile "
     "pdist segment_reduce"},
};

/// The endings of operators that exist for gradients.
constexpr std::array<std::string_view, 4> kOfGradients{"_backward", "_backward_data", "_jvp",
                                                       "_grad"};

}  // namespace

std::string_view why_not_in_onnx(std::string_view name) {
  for (const std::string_view ending : kOfGradients) {
    if (name.ends_with(ending)) return "a part of a backward pass";
  }
  for (const Reason& reason : kReasons) {
    if (has_word(reason.names, name)) return reason.why;
  }
  return {};
}

}  // namespace mezzo::deploy::detail
