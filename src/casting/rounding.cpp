#include "casting/rounding.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/to.h>

#include <algorithm>
#include <cstdint>

namespace mezzo::casting {
namespace {

// As many elements as a core's cache holds in both types.
constexpr std::int64_t kPiece = std::int64_t{1} << 16;

bool in_plain_memory(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.is_cpu() && tensor.is_non_overlapping_and_dense() &&
         !tensor.is_neg() && !tensor._is_zerotensor();
}

// Memory that LibTorch gave to this tensor, or to the one that it is a view of, and to no other.
bool is_sole_owner(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  if (tensor.use_count() != 1 || !storage.resizable()) return false;
  if (!tensor.is_view()) return storage.use_count() == 1;
  return storage.use_count() == 2 && tensor._base().use_count() == 1;
}

// Through a piece in the low type that stays in the caches: whole tensors in that type, and new
// ones for the results, cost several times as much as the rounding.
void round_pieces(const at::Tensor& out, const at::Tensor& in, at::ScalarType low) {
  const std::int64_t count = in.numel();
  const std::int64_t piece = std::min(count, kPiece * at::get_num_threads());
  const at::Tensor values = at::empty({piece}, in.options().dtype(low));
  for (std::int64_t begin = 0; begin < count; begin += piece) {
    const std::int64_t size = std::min(piece, count - begin);
    const auto part = [&](const at::Tensor& whole, std::int64_t offset) {
      return whole.as_strided({size}, {1}, whole.storage_offset() + offset);
    };
    at::Tensor narrow = part(values, 0);
    narrow.copy_(part(in, begin));
    part(out, begin).copy_(narrow);
  }
}

}  // namespace

at::Tensor rounded(const at::Tensor& tensor, at::ScalarType low) {
  return (tensor.scalar_type() == low ? tensor : tensor.to(low)).to(at::kFloat);
}

void round_into(const at::Tensor& out, const at::Tensor& in, at::ScalarType low) {
  {
    const at::AutoDispatchBelowADInplaceOrView unrecorded;
    if (in.scalar_type() == low) {
      out.copy_(in);
    } else if (in_plain_memory(in) && in_plain_memory(out) && in.sizes() == out.sizes() &&
               in.strides() == out.strides()) {
      round_pieces(out, in, low);
    } else {
      out.copy_(in.to(low));
    }
  }
  out.unsafeGetTensorImpl()->bump_version();
}

at::Tensor rounded_gradient(const at::Tensor& gradient, at::ScalarType low) {
  const bool has_graph = (at::GradMode::is_enabled() && gradient.requires_grad()) ||
                         gradient._fw_grad(/*level=*/0).defined();
  if (has_graph || !in_plain_memory(gradient)) return rounded(gradient, low);
  at::Tensor result = is_sole_owner(gradient) ? gradient : at::empty_like(gradient);
  round_into(result, gradient, low);
  return result;
}

}  // namespace mezzo::casting
