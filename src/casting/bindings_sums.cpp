// Known operators whose kernels are compiled in: those that add up values in the type of their
// tensors, most of them in their derivatives. Their arguments say whether these are many.
#include "casting/bindings.h"
#include "casting/kernel.h"

#include <ATen/ops/_embedding_bag_ops.h>
#include <ATen/ops/_unsafe_index_ops.h>
#include <ATen/ops/adaptive_max_pool2d_ops.h>
#include <ATen/ops/adaptive_max_pool3d_ops.h>
#include <ATen/ops/as_strided_copy_ops.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/avg_pool3d_ops.h>
#include <ATen/ops/embedding_bag_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/im2col_ops.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/max_pool3d_with_indices_ops.h>
#include <ATen/ops/replication_pad1d_ops.h>
#include <ATen/ops/replication_pad2d_ops.h>
#include <ATen/ops/replication_pad3d_ops.h>
#include <ATen/ops/scatter_reduce_ops.h>
#include <ATen/ops/take_ops.h>
#include <ATen/ops/unfold_copy_ops.h>
#include <ATen/ops/unfold_ops.h>

namespace mezzo::casting {

namespace {

template <int kDims>
struct MaxPoolSums {
  static bool many(const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef stride,
                   at::IntArrayRef, at::IntArrayRef dilation, bool) {
    return WindowSums<kDims>::many(self, kernel, stride, dilation);
  }
};

template <int kDims>
struct AvgPoolSums {
  template <typename... A>
  static bool many(const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef stride,
                   const A&...) {
    return WindowSums<kDims>::many(self, kernel, stride, at::IntArrayRef());
  }
};

}  // namespace

template <>
struct Sums<at::_ops::max_pool2d_with_indices> : MaxPoolSums<2> {};
template <>
struct Sums<at::_ops::max_pool3d_with_indices> : MaxPoolSums<3> {};
template <>
struct Sums<at::_ops::avg_pool2d> : AvgPoolSums<2> {};
template <>
struct Sums<at::_ops::avg_pool3d> : AvgPoolSums<3> {};
template <>
struct Sums<at::_ops::adaptive_max_pool2d> : AdaptiveSums<2> {};
template <>
struct Sums<at::_ops::adaptive_max_pool3d> : AdaptiveSums<3> {};
template <>
struct Sums<at::_ops::replication_pad1d> : EdgeSums {};
template <>
struct Sums<at::_ops::replication_pad2d> : EdgeSums {};
template <>
struct Sums<at::_ops::replication_pad3d> : EdgeSums {};
template <>
struct Sums<at::_ops::index_Tensor> : PickByListSums {};
template <>
struct Sums<at::_ops::_unsafe_index_Tensor> : PickByListSums {};
template <>
struct Sums<at::_ops::take> : PickSums {};
template <>
struct Sums<at::_ops::scatter_reduce_two> : SumsOffProcessors {};

// With weights of samples, the derivative by these wants one type.
struct BagSums {
  template <typename... A>
  static bool many(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool, std::int64_t,
                   bool, const std::optional<at::Tensor>& weights, const A&...) {
    return weights.has_value() && weights->defined();
  }
};
struct BagGradientSums {
  static constexpr bool kPossible = true;
  template <typename... A>
  static bool many(const at::Tensor& table, const A&... arguments) {
    return wants_gradient(table) && !BagSums::many(table, arguments...);
  }
  template <typename... A>
  static bool gradient_is_sparse(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool,
                                 std::int64_t, bool sparse, const A&...) {
    return sparse;
  }
};
template <>
struct Sums<at::_ops::embedding_bag> : BagSums {};
template <>
struct Sums<at::_ops::embedding_bag_padding_idx> : BagSums {};
template <>
struct Sums<at::_ops::_embedding_bag> : BagSums {};
template <>
struct GradientSums<at::_ops::embedding_bag> : BagGradientSums {};
template <>
struct GradientSums<at::_ops::embedding_bag_padding_idx> : BagGradientSums {};
template <>
struct GradientSums<at::_ops::_embedding_bag> : BagGradientSums {};

template <>
struct GradientSums<at::_ops::embedding> : PickSums {
  static constexpr bool kPossible = true;
  static bool gradient_is_sparse(const at::Tensor&, const at::Tensor&, const c10::SymInt&, bool,
                                 bool sparse) {
    return sparse;
  }
};

template <>
struct GradientSums<at::_ops::index_select> {
  static constexpr bool kPossible = true;
  static bool many(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
    return wants_gradient(self) && !adds_by_scattering(self, dim, index);
  }
};

template <>
struct GradientSums<at::_ops::gather> {
  static constexpr bool kPossible = true;
  static bool many(const at::Tensor& self, std::int64_t, const at::Tensor&, bool sparse) {
    return wants_gradient(self) && (sparse || !self.is_cpu());
  }
  static bool gradient_is_sparse(const at::Tensor&, std::int64_t, const at::Tensor&, bool sparse) {
    return sparse;
  }
};

struct UnfoldSums {
  static constexpr bool kPossible = true;
  static bool many(const at::Tensor& self, std::int64_t, std::int64_t size, std::int64_t step) {
    return wants_gradient(self) && detail::windows_over(size, step) > kFewTerms;
  }
};
template <>
struct GradientSums<at::_ops::unfold> : UnfoldSums {};
template <>
struct GradientSums<at::_ops::unfold_copy> : UnfoldSums {};

template <>
struct GradientSums<at::_ops::im2col> {
  static constexpr bool kPossible = true;
  static bool many(const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef dilation,
                   at::IntArrayRef, at::IntArrayRef stride) {
    return WindowSums<2>::many(self, kernel, stride, dilation);
  }
};

// A view of more elements than it reaches over has some of them many times.
struct StridedSums {
  static constexpr bool kPossible = true;
  static bool many(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                   const std::optional<c10::SymInt>&) {
    if (!wants_gradient(self)) return false;
    std::int64_t elements = 1;
    std::int64_t reach = 1;
    for (std::size_t i = 0; i < size.size(); ++i) {
      elements *= detail::number(size[i]);
      reach += (detail::number(size[i]) - 1) * detail::number(stride[i]);
    }
    return elements > reach;
  }
};
template <>
struct GradientSums<at::_ops::as_strided> : StridedSums {};
template <>
struct GradientSums<at::_ops::as_strided_> : StridedSums {};
template <>
struct GradientSums<at::_ops::as_strided_copy> : StridedSums {};

void bind_sums(Binder& binder) {
  namespace ops = at::_ops;
  binder.add<ops::max_pool2d_with_indices, ops::max_pool3d_with_indices, ops::avg_pool2d,
             ops::avg_pool3d, ops::adaptive_max_pool2d, ops::adaptive_max_pool3d,
             ops::replication_pad1d, ops::replication_pad2d, ops::replication_pad3d,
             ops::index_Tensor, ops::_unsafe_index_Tensor, ops::take, ops::scatter_reduce_two,
             ops::_embedding_bag, ops::embedding_bag, ops::embedding_bag_padding_idx,
             ops::embedding, ops::index_select, ops::gather, ops::unfold, ops::unfold_copy,
             ops::im2col, ops::as_strided, ops::as_strided_, ops::as_strided_copy>();
}

}  // namespace mezzo::casting
