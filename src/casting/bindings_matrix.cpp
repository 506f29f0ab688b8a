// Known operators whose kernels are compiled in: products and attention.
#include "casting/bindings.h"
#include "casting/kernel.h"

#include <ATen/ops/_addmm_activation_ops.h>
#include <ATen/ops/_native_multi_head_attention_ops.h>
#include <ATen/ops/_prelu_kernel_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_ops.h>
#include <ATen/ops/_trilinear_ops.h>
#include <ATen/ops/addbmm_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/addr_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bilinear_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/chain_matmul_ops.h>
#include <ATen/ops/cross_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/einsum_ops.h>
#include <ATen/ops/ger_ops.h>
#include <ATen/ops/inner_ops.h>
#include <ATen/ops/kron_ops.h>
#include <ATen/ops/linalg_cross_ops.h>
#include <ATen/ops/linalg_matmul_ops.h>
#include <ATen/ops/linalg_multi_dot_ops.h>
#include <ATen/ops/linalg_vecdot_ops.h>
#include <ATen/ops/linear_ops.h>
#include <ATen/ops/matmul_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mv_ops.h>
#include <ATen/ops/outer_ops.h>
#include <ATen/ops/prelu_ops.h>
#include <ATen/ops/scaled_dot_product_attention_ops.h>
#include <ATen/ops/tensordot_ops.h>
#include <ATen/ops/vdot_ops.h>

namespace mezzo::casting {

template <>
struct Multiplication<at::_ops::mm> : LeftIsFirst {};
template <>
struct Multiplication<at::_ops::bmm> : LeftIsFirst {};
template <>
struct Multiplication<at::_ops::mv> : LeftIsFirst {};
template <>
struct Multiplication<at::_ops::matmul> : LeftIsFirst {};
template <>
struct Multiplication<at::_ops::linalg_matmul> : LeftIsFirst {};
template <>
struct Multiplication<at::_ops::linear> : LeftIsFirst {};
template <>
struct Multiplication<at::_ops::addmm> : LeftIsSecond {};
template <>
struct Multiplication<at::_ops::addmv> : LeftIsSecond {};
template <>
struct Multiplication<at::_ops::baddbmm> : LeftIsSecond {};
template <>
struct Multiplication<at::_ops::addbmm> {
  static constexpr bool kPossible = true;
  template <typename... A>
  static bool is_one(const at::Tensor&, const at::Tensor& left, const A&...) {
    return is_multiplication_by(left) && left.sizes().front() == 1;  // batches are summed too
  }
};
template <>
struct Multiplication<at::_ops::einsum> {
  static constexpr bool kPossible = true;
  static bool is_one(std::string_view equation, at::TensorList operands, at::OptionalIntArrayRef) {
    return is_einsum_multiplication(equation, operands);
  }
};

void bind_matrix(Binder& binder) {
  namespace ops = at::_ops;
  binder.add<ops::mm, ops::bmm, ops::mv, ops::matmul, ops::linear, ops::linalg_vecdot,
             ops::chain_matmul, ops::linalg_multi_dot, ops::einsum, ops::linalg_matmul, ops::dot,
             ops::vdot, ops::inner, ops::outer, ops::ger, ops::tensordot, ops::bilinear, ops::kron,
             ops::cross, ops::linalg_cross, ops::prelu, ops::_prelu_kernel, ops::_trilinear,
             ops::mm_out, ops::bmm_out, ops::mv_out, ops::matmul_out, ops::linear_out, ops::dot_out,
             ops::scaled_dot_product_attention, ops::_scaled_dot_product_flash_attention,
             ops::_native_multi_head_attention>();
  binder
      .add_guarded<ops::addmm, ops::addmm_out, ops::addmm_, ops::addmv, ops::addmv_out, ops::addmv_,
                   ops::addr, ops::addr_out, ops::addr_, ops::addbmm, ops::addbmm_out, ops::addbmm_,
                   ops::baddbmm, ops::baddbmm_out, ops::baddbmm_, ops::_addmm_activation>();
}

}  // namespace mezzo::casting
