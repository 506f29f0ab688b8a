// Known operators whose kernels are compiled in: normalisations, losses, resampling and pooling.
#include "casting/bindings.h"
#include "casting/kernel.h"

#include <ATen/ops/_upsample_bicubic2d_aa_ops.h>
#include <ATen/ops/_upsample_bilinear2d_aa_ops.h>
#include <ATen/ops/_upsample_nearest_exact1d_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_ops.h>
#include <ATen/ops/_upsample_nearest_exact3d_ops.h>
#include <ATen/ops/adaptive_avg_pool1d_ops.h>
#include <ATen/ops/adaptive_avg_pool2d_ops.h>
#include <ATen/ops/adaptive_avg_pool3d_ops.h>
#include <ATen/ops/binary_cross_entropy_ops.h>
#include <ATen/ops/binary_cross_entropy_with_logits_ops.h>
#include <ATen/ops/cosine_embedding_loss_ops.h>
#include <ATen/ops/cross_entropy_loss_ops.h>
#include <ATen/ops/ctc_loss_ops.h>
#include <ATen/ops/embedding_renorm_ops.h>
#include <ATen/ops/group_norm_ops.h>
#include <ATen/ops/hinge_embedding_loss_ops.h>
#include <ATen/ops/huber_loss_ops.h>
#include <ATen/ops/kl_div_ops.h>
#include <ATen/ops/l1_loss_ops.h>
#include <ATen/ops/layer_norm_ops.h>
#include <ATen/ops/margin_ranking_loss_ops.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/multi_margin_loss_ops.h>
#include <ATen/ops/multilabel_margin_loss_forward_ops.h>
#include <ATen/ops/multilabel_margin_loss_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/nll_loss2d_ops.h>
#include <ATen/ops/nll_loss_nd_ops.h>
#include <ATen/ops/nll_loss_ops.h>
#include <ATen/ops/poisson_nll_loss_ops.h>
#include <ATen/ops/rms_norm_ops.h>
#include <ATen/ops/smooth_l1_loss_ops.h>
#include <ATen/ops/soft_margin_loss_ops.h>
#include <ATen/ops/triplet_margin_loss_ops.h>
#include <ATen/ops/upsample_bicubic2d_ops.h>
#include <ATen/ops/upsample_bilinear2d_ops.h>
#include <ATen/ops/upsample_linear1d_ops.h>
#include <ATen/ops/upsample_nearest1d_ops.h>
#include <ATen/ops/upsample_nearest2d_ops.h>
#include <ATen/ops/upsample_nearest3d_ops.h>
#include <ATen/ops/upsample_trilinear3d_ops.h>

namespace mezzo::casting {

template <>
struct Sums<at::_ops::adaptive_avg_pool1d> : AdaptiveSums<1> {};
template <>
struct Sums<at::_ops::adaptive_avg_pool2d> : AdaptiveSums<2> {};
template <>
struct Sums<at::_ops::adaptive_avg_pool3d> : AdaptiveSums<3> {};

void bind_loss(Binder& binder) {
  namespace ops = at::_ops;
  binder.add<
      ops::layer_norm, ops::native_layer_norm, ops::rms_norm, ops::group_norm,
      ops::native_group_norm, ops::binary_cross_entropy, ops::binary_cross_entropy_with_logits,
      ops::cosine_embedding_loss, ops::cross_entropy_loss, ops::ctc_loss_IntList,
      ops::ctc_loss_Tensor, ops::hinge_embedding_loss, ops::huber_loss, ops::kl_div, ops::l1_loss,
      ops::margin_ranking_loss, ops::mse_loss, ops::multi_margin_loss, ops::multilabel_margin_loss,
      ops::multilabel_margin_loss_forward, ops::nll_loss, ops::nll_loss2d, ops::nll_loss_nd,
      ops::poisson_nll_loss, ops::smooth_l1_loss, ops::soft_margin_loss, ops::triplet_margin_loss,
      ops::upsample_nearest1d, ops::upsample_nearest1d_vec, ops::_upsample_nearest_exact1d,
      ops::_upsample_nearest_exact1d_vec, ops::upsample_nearest2d, ops::upsample_nearest2d_vec,
      ops::_upsample_nearest_exact2d, ops::_upsample_nearest_exact2d_vec, ops::upsample_nearest3d,
      ops::upsample_nearest3d_vec, ops::_upsample_nearest_exact3d,
      ops::_upsample_nearest_exact3d_vec, ops::upsample_linear1d, ops::upsample_linear1d_vec,
      ops::upsample_bilinear2d, ops::upsample_bilinear2d_vec, ops::_upsample_bilinear2d_aa,
      ops::_upsample_bilinear2d_aa_vec, ops::upsample_trilinear3d, ops::upsample_trilinear3d_vec,
      ops::upsample_bicubic2d, ops::upsample_bicubic2d_vec, ops::_upsample_bicubic2d_aa,
      ops::_upsample_bicubic2d_aa_vec, ops::embedding_renorm_, ops::adaptive_avg_pool1d,
      ops::adaptive_avg_pool2d, ops::adaptive_avg_pool3d>();
}

}  // namespace mezzo::casting
