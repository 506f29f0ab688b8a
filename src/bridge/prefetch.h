// Long lists of tensors without waiting for memory once per object: the objects behind thousands of
// tensors are no longer in the caches when the next step asks for them.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/torch.h"

namespace mezzo::bridge {

/// Runs stages over a list, block by block: stage(i) for each item of a block before the next
/// stage's. Each finds what the last one prefetched, and the misses of a block overlap.
template <typename... Stages>
void in_blocks(std::size_t count, const Stages&... stages) {
  constexpr std::size_t kBlock = 64;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, count);
    const auto run = [&](const auto& stage) {
      for (std::size_t i = begin; i < end; ++i) stage(i);
    };
    (run(stages), ...);
  }
}

inline void prefetch_bytes(const void* begin, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const char* const first = static_cast<const char*>(begin);
  for (std::size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(first + at);
  __builtin_prefetch(first + bytes - 1);
}

/// The object behind a tensor.
inline void prefetch(const at::Tensor& tensor) {
  prefetch_bytes(tensor.unsafeGetTensorImpl(), sizeof(c10::TensorImpl));
}

/// The parts of that object: the storage, and autograd's part with the gradient.
inline void prefetch_parts(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  __builtin_prefetch(impl.unsafe_storage().unsafeGetStorageImpl());
  constexpr std::size_t kUpToGradient = 64;
  if (const auto* meta = impl.autograd_meta()) prefetch_bytes(meta, kUpToGradient);
}

/// Its version counter.
inline void prefetch_version(const at::Tensor& tensor) {
  if (tensor.is_inference()) return;
  static_cast<void>(tensor.unsafeGetTensorImpl()->version_counter().current_version());
}

}  // namespace mezzo::bridge
