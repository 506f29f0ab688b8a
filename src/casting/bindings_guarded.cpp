// Known operators whose kernels are compiled in: those that give scalars and 0-dimensional tensors
// the type of their other arguments.
#include "casting/bindings.h"
#include "casting/kernel.h"
#include "casting/reversed_division.h"

#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/constant_pad_nd_ops.h>
#include <ATen/ops/copysign_ops.h>
#include <ATen/ops/cosine_similarity_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/floor_divide_ops.h>
#include <ATen/ops/fmax_ops.h>
#include <ATen/ops/fmin_ops.h>
#include <ATen/ops/fmod_ops.h>
#include <ATen/ops/full_like_ops.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/hypot_ops.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/index_fill_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/logaddexp_ops.h>
#include <ATen/ops/logit_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/nan_to_num_ops.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/new_full_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/renorm_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/softplus_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/threshold_ops.h>
#include <ATen/ops/true_divide_ops.h>
#include <ATen/ops/where_ops.h>
#include <ATen/ops/xlogy_ops.h>

namespace mezzo::casting {

template <>
struct Watch<at::_ops::fill__Scalar> {
  static void call(const at::Tensor& self, const at::Scalar&) { note_filled(self); }
};

template <>
struct Watch<at::_ops::div__Tensor> {
  static void call(const at::Tensor& self, const at::Tensor&) { tell_reversed_division(self); }
};

template <>
struct Sums<at::_ops::index_add> : IndexAddSums {};
template <>
struct Sums<at::_ops::index_add_> : IndexAddSums {};

template <>
struct Steepness<at::_ops::div_Tensor> {
  static Inside of(const at::Tensor&, const at::Tensor& divisor) {
    return SteepDivisor::of(divisor);
  }
};
template <>
struct Steepness<at::_ops::addcdiv> {
  static Inside of(const at::Tensor&, const at::Tensor&, const at::Tensor& divisor,
                   const at::Scalar&) {
    return SteepDivisor::of(divisor);
  }
};
// A square's derivative is twice its base. Higher powers of plain values leave float16, and roots
// of them bring them back: LPPool.
template <>
struct Steepness<at::_ops::pow_Tensor_Scalar> {
  static Inside of(const at::Tensor& base, const at::Scalar& exponent) {
    const double power = exponent.isComplex() ? 2 : exponent.toDouble();
    if (power == 2) return Inside::kOwnTypes;
    return power > 2 && base.scalar_type() == at::kHalf ? Inside::kFloatKept : Inside::kFloat;
  }
};

void bind_guarded(Binder& binder) {
  namespace ops = at::_ops;
  binder.add_guarded<
      ops::add_Tensor, ops::add_Scalar, ops::add__Tensor, ops::sub_Tensor, ops::sub_Scalar,
      ops::sub__Tensor, ops::mul_Tensor, ops::mul__Tensor, ops::mul_Scalar, ops::div_Tensor,
      ops::div_Scalar, ops::div_Tensor_mode, ops::div_Scalar_mode, ops::div__Tensor,
      ops::true_divide_Tensor, ops::rsub_Tensor, ops::rsub_Scalar, ops::remainder_Scalar,
      ops::remainder_Tensor, ops::fmod_Scalar, ops::fmod_Tensor, ops::floor_divide, ops::eq_Scalar,
      ops::eq_Tensor, ops::ne_Scalar, ops::ne_Tensor, ops::lt_Scalar, ops::lt_Tensor,
      ops::le_Scalar, ops::le_Tensor, ops::gt_Scalar, ops::gt_Tensor, ops::ge_Scalar,
      ops::ge_Tensor, ops::maximum, ops::minimum, ops::fmax, ops::fmin, ops::max_other,
      ops::min_other, ops::clamp, ops::clamp_Tensor, ops::clamp_, ops::clamp_min, ops::clamp_min_,
      ops::clamp_max, ops::clamp_max_, ops::hardtanh, ops::hardtanh_, ops::threshold,
      ops::leaky_relu, ops::nan_to_num, ops::masked_fill_Scalar, ops::masked_fill_Tensor,
      ops::masked_fill__Scalar, ops::masked_fill__Tensor, ops::index_fill_int_Scalar,
      ops::index_fill__int_Scalar, ops::scatter_value, ops::scatter__value, ops::fill__Scalar,
      ops::fill__Tensor, ops::full_like, ops::new_full, ops::constant_pad_nd, ops::where_self,
      ops::where_ScalarOther, ops::where_ScalarSelf, ops::addcmul, ops::addcdiv, ops::addcmul_,
      ops::addcdiv_, ops::lerp_Scalar, ops::lerp__Scalar, ops::pow_Tensor_Scalar,
      ops::pow_Tensor_Tensor, ops::pow_Scalar, ops::elu, ops::hypot, ops::pow__Tensor, ops::logit,
      ops::renorm, ops::index_add, ops::index_add_, ops::copysign_Tensor, ops::xlogy_Tensor,
      ops::logaddexp, ops::softplus, ops::cosine_similarity>();
}

}  // namespace mezzo::casting
