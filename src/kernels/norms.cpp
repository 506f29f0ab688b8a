#include "kernels/norms.h"

#include <algorithm>
#include <cstring>

#include "kernels/kernel_set.h"

namespace mezzo::kernels {
namespace {

constexpr std::int64_t kRowsPerBlock = 64;
constexpr std::int64_t kMostRowBlocks = 32;

Range row_block(std::int64_t block, std::int64_t blocks, std::int64_t rows) {
  return {rows * block / blocks, rows * (block + 1) / blocks};
}

template <typename T>
void sum_blocks(const T* partial, std::int64_t blocks, std::int64_t stride, std::int64_t columns,
                T* total) {
  std::fill_n(total, columns, T(0));
  for (std::int64_t block = 0; block < blocks; ++block) {
    for (std::int64_t i = 0; i < columns; ++i) total[i] += partial[block * stride + i];
  }
}

template <typename T>
void backward(const NormBackward& norm, T* scratch, const Workers& workers) {
  const KernelSet& set = kernels();
  const std::int64_t columns = norm.shape.columns;
  const std::int64_t blocks = norm_blocks(norm.shape.rows);
  const std::int64_t stride = 2 * columns;
  workers.share(blocks, norm.shape.rows * norm.shape.columns,
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t block = begin; block < end; ++block) {
                    T* partial = scratch + block * stride;
                    std::fill_n(partial, stride, T(0));
                    set.norm_backward(norm, row_block(block, blocks, norm.shape.rows), partial,
                                      partial + columns);
                  }
                });
  if (norm.dweight != nullptr) {
    sum_blocks(scratch, blocks, stride, columns, static_cast<T*>(norm.dweight));
  }
  if (norm.dbias != nullptr) {
    sum_blocks(scratch + columns, blocks, stride, columns, static_cast<T*>(norm.dbias));
  }
}

}  // namespace

std::int64_t norm_blocks(std::int64_t rows) {
  return std::clamp((rows + kRowsPerBlock - 1) / kRowsPerBlock, std::int64_t{1}, kMostRowBlocks);
}

std::int64_t norm_scratch(const NormShape& shape) {
  return norm_blocks(shape.rows) * 2 * shape.columns;
}

void norm_forward(const NormForward& norm, const Workers& workers) {
  const KernelSet& set = kernels();
  const std::int64_t blocks = norm_blocks(norm.shape.rows);
  workers.share(blocks, norm.shape.rows * norm.shape.columns,
                [&](std::int64_t begin, std::int64_t end) {
                  set.norm_forward(norm, {row_block(begin, blocks, norm.shape.rows).begin,
                                          row_block(end - 1, blocks, norm.shape.rows).end});
                });
}

void norm_backward(const NormBackward& norm, void* scratch, const Workers& workers) {
  norm.shape.wide ? backward(norm, static_cast<double*>(scratch), workers)
                  : backward(norm, static_cast<float*>(scratch), workers);
}

}  // namespace mezzo::kernels
