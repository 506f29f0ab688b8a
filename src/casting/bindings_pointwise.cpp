// Known operators whose kernels are compiled in: element-wise functions, reductions, sequences and
// indexing.
#include "casting/bindings.h"
#include "casting/kernel.h"

#include <ATen/ops/_grid_sampler_2d_cpu_fallback_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/acos_ops.h>
#include <ATen/ops/acosh_ops.h>
#include <ATen/ops/argsort_ops.h>
#include <ATen/ops/asin_ops.h>
#include <ATen/ops/atan2_ops.h>
#include <ATen/ops/atanh_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/cdist_ops.h>
#include <ATen/ops/cosh_ops.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/digamma_ops.h>
#include <ATen/ops/dist_ops.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/erfinv_ops.h>
#include <ATen/ops/exp2_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/float_power_ops.h>
#include <ATen/ops/frobenius_norm_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/grid_sampler_2d_ops.h>
#include <ATen/ops/grid_sampler_3d_ops.h>
#include <ATen/ops/grid_sampler_ops.h>
#include <ATen/ops/index_copy_ops.h>
#include <ATen/ops/index_put_ops.h>
#include <ATen/ops/lgamma_ops.h>
#include <ATen/ops/linalg_matrix_norm_ops.h>
#include <ATen/ops/linalg_norm_ops.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/log10_ops.h>
#include <ATen/ops/log1p_ops.h>
#include <ATen/ops/log2_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/log_sigmoid_ops.h>
#include <ATen/ops/log_softmax_ops.h>
#include <ATen/ops/logcumsumexp_ops.h>
#include <ATen/ops/logsumexp_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/mish_ops.h>
#include <ATen/ops/mvlgamma_ops.h>
#include <ATen/ops/nanmean_ops.h>
#include <ATen/ops/nanquantile_ops.h>
#include <ATen/ops/nansum_ops.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/nuclear_norm_ops.h>
#include <ATen/ops/pairwise_distance_ops.h>
#include <ATen/ops/pdist_ops.h>
#include <ATen/ops/polar_ops.h>
#include <ATen/ops/polygamma_ops.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/quantile_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/selu_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sinh_ops.h>
#include <ATen/ops/softmax_ops.h>
#include <ATen/ops/special_gammaln_ops.h>
#include <ATen/ops/square_ops.h>
#include <ATen/ops/stack_ops.h>
#include <ATen/ops/std_mean_ops.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tan_ops.h>
#include <ATen/ops/topk_ops.h>
#include <ATen/ops/trace_ops.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_ops.h>

namespace mezzo::casting {

template <>
struct Sums<at::_ops::scatter_add> : SumsOffProcessors {};
template <>
struct Sums<at::_ops::scatter_add_> : SumsOffProcessors {};

struct AccumulateSums {
  static bool many(const at::Tensor&, const c10::List<std::optional<at::Tensor>>&,
                   const at::Tensor&, bool accumulate) {
    return accumulate;
  }
};
template <>
struct Sums<at::_ops::index_put> : AccumulateSums {};
template <>
struct Sums<at::_ops::index_put_> : AccumulateSums {};

void bind_pointwise(Binder& binder) {
  namespace ops = at::_ops;
  binder.add<
      ops::acos, ops::asin, ops::atanh, ops::acosh, ops::cosh, ops::erfinv, ops::exp, ops::exp2,
      ops::expm1, ops::log, ops::log10, ops::log2, ops::log1p, ops::reciprocal, ops::rsqrt,
      ops::sinh, ops::tan, ops::square, ops::log_sigmoid, ops::selu, ops::gelu, ops::silu,
      ops::mish, ops::lgamma, ops::digamma, ops::polygamma, ops::special_gammaln, ops::atan2,
      ops::atan2_, ops::float_power_Tensor_Tensor, ops::mvlgamma, ops::erf, ops::softmax_int,
      ops::log_softmax_int, ops::_softmax, ops::_log_softmax, ops::logsumexp, ops::cumsum,
      ops::cumprod, ops::logcumsumexp, ops::sum, ops::sum_dim_IntList, ops::nansum, ops::nanmean,
      ops::mean, ops::mean_dim, ops::prod, ops::prod_dim_int, ops::norm_Scalar,
      ops::norm_ScalarOpt_dim, ops::norm_ScalarOpt_dtype, ops::norm_ScalarOpt_dim_dtype,
      ops::frobenius_norm_dim, ops::nuclear_norm, ops::nuclear_norm_dim, ops::linalg_vector_norm,
      ops::linalg_matrix_norm, ops::linalg_matrix_norm_str_ord, ops::linalg_norm,
      ops::linalg_norm_ord_str, ops::std, ops::std_dim, ops::std_correction, ops::var, ops::var_dim,
      ops::var_correction, ops::std_mean, ops::std_mean_dim, ops::std_mean_correction,
      ops::var_mean, ops::var_mean_dim, ops::var_mean_correction, ops::dist, ops::pdist, ops::cdist,
      ops::pairwise_distance, ops::trace, ops::cat, ops::stack, ops::cat_out, ops::stack_out,
      ops::index_put, ops::index_put_, ops::index_copy, ops::index_copy_, ops::scatter_add,
      ops::scatter_add_, ops::grid_sampler, ops::grid_sampler_2d, ops::grid_sampler_3d,
      ops::_grid_sampler_2d_cpu_fallback, ops::polar, ops::quantile, ops::quantile_scalar,
      ops::nanquantile, ops::nanquantile_scalar, ops::argsort, ops::argsort_stable, ops::topk>();
}

}  // namespace mezzo::casting
