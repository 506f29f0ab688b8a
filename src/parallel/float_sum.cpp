#include "parallel/float_sum.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "bridge/device.h"
#include "bridge/multi_tensor.h"
#include "bridge/tensors.h"
#include "bridge/workers.h"
#include "kernels/kernel_set.h"
#include "parallel/scratch.h"

namespace mezzo::parallel {
namespace {

constexpr const char* kInFloatSum = "all_reduce";

// 32 KiB of float sums stay in the first-level cache.
constexpr std::int64_t kBlock = 8192;

// A product by a power of two is exact, so that a fused multiply-add gives the bits of a product
// and a sum, which another processor may compute.
bool is_power_of_two(double factor) {
  int exponent = 0;
  return std::abs(std::frexp(factor, &exponent)) == 0.5;
}

struct Rows {
  std::vector<const char*> data;
  DType dtype;
  std::int64_t element_size;

  kernels::Input block(std::size_t row, std::int64_t begin, std::int64_t length) const {
    return {data[row] + begin * element_size, dtype, length};
  }
};

void sum_block(const Rows& rows, std::int64_t begin, const kernels::Output& out, double factor) {
  const kernels::KernelSet& set = kernels::kernels();
  const kernels::Range all{0, out.count};
  std::array<float, kBlock> memory;
  const kernels::Input sum{memory.data(), DType::kFloat32, out.count};
  const kernels::Output to_sum{memory.data(), DType::kFloat32, out.count};
  const bool exact = is_power_of_two(factor);
  kernels::Input left = rows.block(0, begin, out.count);
  const std::size_t last = rows.data.size() - 1;
  for (std::size_t row = 1; row <= last; ++row) {
    const kernels::Input right = rows.block(row, begin, out.count);
    if (row == last && exact) {
      set.axpby(left, right, out, all, factor, factor);
      return;
    }
    set.axpby(left, right, to_sum, all, 1, 1);
    left = sum;
  }
  set.scale(left, out, all, factor);
}

void sum_by_blocks(std::span<const at::Tensor> rows, const at::Tensor& out, double factor) {
  Rows all{{},
           bridge::check_kernel_tensor(kInFloatSum, "what a rank gave", rows.front()),
           static_cast<std::int64_t>(rows.front().element_size())};
  for (const at::Tensor& row : rows) {
    all.data.push_back(static_cast<const char*>(row.const_data_ptr()));
  }
  const DType to = bridge::check_kernel_tensor(kInFloatSum, "the average", out);
  char* const target = static_cast<char*>(out.mutable_data_ptr());
  const auto size = static_cast<std::int64_t>(out.element_size());
  const std::int64_t elements = out.numel();
  const std::int64_t blocks = (elements + kBlock - 1) / kBlock;
  const auto run = [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t block = first; block < end; ++block) {
      const std::int64_t begin = block * kBlock;
      const std::int64_t length = std::min(kBlock, elements - begin);
      sum_block(all, begin, {target + begin * size, to, length}, factor);
    }
  };
  bridge::torch_workers().share(blocks, elements * static_cast<std::int64_t>(rows.size()), run);
}

// On a device with kernels, in the same order as above. One row: its bytes once, and the result's.
// Nothing asks whether the results are finite.
void sum_by_lists(std::span<const at::Tensor> rows, const at::Tensor& out, double factor) {
  const at::Tensor result = out.view({-1});
  at::Tensor unread = at::empty({}, out.options().dtype(at::kFloat));
  const auto scale = [&](const at::Tensor& in) {
    if (factor == 1) return bridge::copy(kInFloatSum, {in}, {result});
    bridge::scale(kInFloatSum, {in}, {result}, factor, unread);
  };
  at::Tensor left = rows.front().view({-1});
  if (rows.size() == 1) return scale(left);
  const bool exact = is_power_of_two(factor);
  std::optional<Scratch> sums;
  for (std::size_t row = 1; row < rows.size(); ++row) {
    const at::Tensor right = rows[row].view({-1});
    if (row + 1 == rows.size() && exact) {
      return bridge::axpby(kInFloatSum, {left}, {right}, {result}, factor, factor, unread);
    }
    if (!sums) {
      sums.emplace(at::IntArrayRef{result.numel()}, out.options().dtype(at::kFloat));
    }
    bridge::axpby(kInFloatSum, {left}, {right}, {sums->tensor()}, 1, 1, unread);
    left = sums->tensor();
  }
  scale(left);
}

void sum_by_operators(std::span<const at::Tensor> rows, const at::Tensor& out, double factor) {
  if (rows.size() == 1 && factor == 1) {
    out.view({-1}).copy_(rows.front().view({-1}));
    return;
  }
  const at::Tensor sum = rows.front().view({-1}).to(at::kFloat, /*non_blocking=*/false,
                                                    /*copy=*/true);
  for (const at::Tensor& row : rows.subspan(1)) sum.add_(row.view({-1}));
  if (factor != 1) sum.mul_(factor);
  out.view({-1}).copy_(sum);
}

}  // namespace

void sum_in_float(std::span<const at::Tensor> rows, const at::Tensor& out, double factor) {
  const at::Device device = out.device();
  if (bridge::cuda_kernels(device, bridge::Family::kLists) != nullptr) {
    sum_by_lists(rows, out, factor);
  } else if (device.is_cpu()) {
    sum_by_blocks(rows, out, factor);
  } else {
    sum_by_operators(rows, out, factor);
  }
  bridge::bump_version(out);
}

void sum_in_float(const at::Tensor& all, const at::Tensor& out, double factor) {
  const std::vector<at::Tensor> rows = all.unbind();
  sum_in_float(rows, out, factor);
}

}  // namespace mezzo::parallel
