// The operator table, part: factorisations and transforms.
#pragma once

#include <array>

#include "operators/rows/row.h"

namespace mezzo::rows {

inline constexpr std::string_view kFactor =
    "a factorisation loses its digits in 16 bits, and LibTorch has no 16-bit kernel";
inline constexpr std::string_view kFourier =
    "a transform sums every value; LibTorch has no 16-bit kernel for processors";
inline constexpr std::string_view kMatrixPower =
    "powers leave the range of 16 bits, and errors grow with each product";
inline constexpr std::string_view kMatrixExp =
    "LibTorch's kernel has no constants for 16 bits, and gives NaN";
inline constexpr std::string_view kComplex =
    "makes complex numbers, of which float is the smallest common type";

inline constexpr std::array kLinalgRows{
    lacks_low(row("_lu_with_info", kFloat, "---f", kFactor)),
    lacks_low(row("cholesky", kFloat, "---f", kFactor)),
    lacks_low(row("cholesky_inverse", kFloat, "-f-f", kFactor)),
    lacks_low(row("cholesky_solve", kFloat, "---f", kFactor)),
    lacks_low(row("fft_fft", kFloat, "-f-f", kFourier)),
    lacks_low(row("fft_fft2", kFloat, "---f", kFourier)),
    lacks_low(row("fft_fftn", kFloat, "---f", kFourier)),
    lacks_low(row("fft_hfft", kFloat, "---f", kFourier)),
    lacks_low(row("fft_ifft", kFloat, "-n-f", kFourier)),
    lacks_low(row("fft_ifft2", kFloat, "---f", kFourier)),
    lacks_low(row("fft_ifftn", kFloat, "---f", kFourier)),
    lacks_low(row("fft_ihfft", kFloat, "---f", kFourier)),
    lacks_low(row("fft_irfft", kFloat, "---f", kFourier)),
    lacks_low(row("fft_irfft2", kFloat, "---f", kFourier)),
    lacks_low(row("fft_irfftn", kFloat, "---f", kFourier)),
    lacks_low(row("fft_rfft", kFloat, "---f", kFourier)),
    lacks_low(row("fft_rfft2", kFloat, "---f", kFourier)),
    lacks_low(row("fft_rfftn", kFloat, "---f", kFourier)),
    lacks_low(row("geqrf", kFloat, "---f", kFactor)),
    lacks_low(row("inverse", kFloat, "---f", kFactor)),
    lacks_low(row("linalg_cholesky", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_cholesky_ex", kFloat, "---f", kFactor)),
    lacks_low(row("linalg_cond", kFloat, "---f", kFactor)),
    lacks_low(row("linalg_cond.p_str", kFloat, "---f", kFactor)),
    lacks_low(row("linalg_det", kFloat, "-f--", kFactor)),
    lacks_low(row("linalg_eig", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_eigh", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_eigvals", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_eigvalsh", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_householder_product", kFloat, "---f", kFactor)),
    lacks_low(row("linalg_inv", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_inv_ex", kFloat, "---f", kFactor)),
    lacks_low(row("linalg_lstsq", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_matrix_exp", kFloat, "----", kMatrixExp)),
    lacks_low(row("linalg_matrix_power", kFloat, "----", kMatrixPower)),
    lacks_low(row("linalg_matrix_rank", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_matrix_rank.atol_rtol_float", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_matrix_rank.atol_rtol_tensor", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_matrix_rank.tol_tensor", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_pinv", kFloat, "-f--", kFactor)),
    lacks_low(row("linalg_pinv.atol_rtol_float", kFloat, "-f--", kFactor)),
    lacks_low(row("linalg_pinv.atol_rtol_tensor", kFloat, "-f--", kFactor)),
    lacks_low(row("linalg_pinv.rcond_tensor", kFloat, "-f--", kFactor)),
    lacks_low(row("linalg_qr", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_slogdet", kFloat, "-f--", kFactor)),
    lacks_low(row("linalg_solve", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_solve_triangular", kFloat, "-f--", kFactor)),
    lacks_low(row("linalg_svd", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_svdvals", kFloat, "---f", kFactor)),
    lacks_low(row("linalg_tensorinv", kFloat, "-f-f", kFactor)),
    lacks_low(row("linalg_tensorsolve", kFloat, "-f-f", kFactor)),
    lacks_low(row("lu_solve", kFloat, "---f", kFactor)),
    lacks_low(row("matrix_exp", kFloat, "----", kMatrixExp)),
    lacks_low(row("matrix_power", kFloat, "----", kMatrixPower)),
    lacks_low(row("orgqr", kFloat, "---f", kFactor)),
    lacks_low(row("ormqr", kFloat, "---f", kFactor)),
    lacks_low(row("pinverse", kFloat, "---f", kFactor)),
    lacks_low(row("polar", kFloat, "---f", kComplex)),
    lacks_low(row("qr", kFloat, "---f", kFactor)),
    lacks_low(row("stft", kFloat, "---f", kFourier)),
    lacks_low(row("stft.center", kFloat, "---f", kFourier)),
    lacks_low(row("svd", kFloat, "---f", kFactor)),
    lacks_low(row("triangular_solve", kFloat, "---f", kFactor)),
    lacks_low(row("view_as_complex", kFloat, "---f", kComplex)),
};

}  // namespace mezzo::rows
