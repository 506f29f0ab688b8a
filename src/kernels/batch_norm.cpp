#include "kernels/batch_norm.h"

#include <algorithm>
#include <vector>

#include "kernels/batch_norm_elements.h"
#include "kernels/kernel_set.h"

namespace mezzo::kernels {
namespace {

constexpr std::int64_t kElementsPerPiece = 16384;
constexpr std::int64_t kMostBatchBlocks = 32;

bool channels_innermost(const BatchShape& shape) {
  return shape.places == 1;
}

// The batch is cut by samples for sums: a matter of the shape alone, so that results do not depend
// on the number of workers. If a channel's places are together, channels are work enough.
std::int64_t blocks_of(const BatchShape& shape) {
  const std::int64_t wanted = channels_innermost(shape)
                                  ? shape.samples * shape.channels / kElementsPerPiece
                                  : kMostBatchBlocks / std::max(shape.channels, std::int64_t{1});
  const std::int64_t most = std::max(std::min(shape.samples, kMostBatchBlocks), std::int64_t{1});
  return std::clamp(wanted, std::int64_t{1}, most);
}

Range batch_block(std::int64_t block, std::int64_t blocks, std::int64_t samples) {
  return {samples * block / blocks, samples * (block + 1) / blocks};
}

std::int64_t elements_of(const BatchShape& shape) {
  return shape.samples * shape.channels * shape.places;
}

// Runs visit(part, block) over the parts that sums are made of.
template <typename Visit>
void for_each_part(const BatchShape& shape, const Workers& workers, const Visit& visit) {
  const std::int64_t blocks = blocks_of(shape);
  const std::int64_t slices = channels_innermost(shape) ? 1 : shape.channels;
  workers.share(blocks * slices, elements_of(shape), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t block = item / slices;
      const std::int64_t slice = item % slices;
      const Range channels = slices == 1 ? Range{0, shape.channels} : Range{slice, slice + 1};
      visit(BatchPart{batch_block(block, blocks, shape.samples), channels}, block);
    }
  });
}

// Runs visit(samples, channels) over pieces of nearly equal size, for work without sums.
template <typename Visit>
void for_each_piece(const BatchShape& shape, const Workers& workers, const Visit& visit) {
  const std::int64_t of_sample = shape.channels * shape.places;
  if (of_sample == 0 || shape.samples == 0) return;
  if (channels_innermost(shape) || of_sample <= kElementsPerPiece) {
    const std::int64_t samples = std::max(kElementsPerPiece / of_sample, std::int64_t{1});
    const std::int64_t pieces = (shape.samples + samples - 1) / samples;
    workers.share(pieces, elements_of(shape), [&](std::int64_t begin, std::int64_t end) {
      visit(BatchPart{{begin * samples, std::min(end * samples, shape.samples)},
                      {0, shape.channels}});
    });
    return;
  }
  workers.share(shape.samples * shape.channels, elements_of(shape),
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t row = begin; row < end; ++row) {
                    const std::int64_t sample = row / shape.channels;
                    const std::int64_t channel = row % shape.channels;
                    visit(BatchPart{{sample, sample + 1}, {channel, channel + 1}});
                  }
                });
}

// The numbers of a channel as the kernels read them.
class Coefficients {
 public:
  Coefficients(std::int64_t channels, int arrays, bool wide)
      : channels_(channels),
        wide_(wide),
        floats_(wide ? 0 : static_cast<std::size_t>(channels * arrays)),
        doubles_(wide ? static_cast<std::size_t>(channels * arrays) : 0) {}

  void set(int array, std::int64_t channel, double value) {
    const auto at = static_cast<std::size_t>(array * channels_ + channel);
    wide_ ? void(doubles_[at] = value) : void(floats_[at] = static_cast<float>(value));
  }
  /// The number as it is read back after it has been stored here.
  double rounded(double value) const {
    return wide_ ? value : static_cast<double>(static_cast<float>(value));
  }
  BatchCoefficients get() const {
    return {wide_ ? static_cast<const void*>(doubles_.data())
                  : static_cast<const void*>(floats_.data()),
            wide_};
  }

 private:
  const std::int64_t channels_;
  const bool wide_;
  std::vector<float> floats_;
  std::vector<double> doubles_;
};

std::vector<double> as_doubles(const Rows& row, std::int64_t count, double if_null) {
  std::vector<double> result(static_cast<std::size_t>(count), if_null);
  if (row.data != nullptr) {
    kernels().copy({row.data, row.dtype, count}, {result.data(), DType::kFloat64, count},
                   {0, count});
  }
  return result;
}

bool is_wide(const Rows& x) {
  return x.dtype == DType::kFloat64;
}

Coefficients centres(const BatchGradient& gradient) {
  Coefficients result(gradient.shape.channels, 1, is_wide(gradient.x));
  for (std::int64_t c = 0; c < gradient.shape.channels; ++c) result.set(0, c, gradient.mean[c]);
  return result;
}

// Two sums a block and channel, added up in the order of the blocks.
double sum_blocks(const double* partial, std::int64_t blocks, std::int64_t stride) {
  double sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += partial[block * stride];
  return sum;
}

}  // namespace

std::int64_t batch_scratch(const BatchShape& shape) {
  return blocks_of(shape) * 2 * shape.channels;
}

void batch_moments(const Rows& x, const BatchShape& shape, const Moments& moments, double* scratch,
                   const Workers& workers) {
  const KernelSet& set = kernels();
  const std::int64_t blocks = blocks_of(shape);
  const std::int64_t stride = 2 * shape.channels;
  std::fill_n(scratch, blocks * stride, 0.0);
  for_each_part(shape, workers, [&](const BatchPart& part, std::int64_t block) {
    double* partial = scratch + block * stride;
    set.batch_moments(x, shape, part, {partial, partial + shape.channels});
  });
  std::vector<RankMoments> all;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const Range samples = batch_block(block, blocks, shape.samples);
    all.push_back({static_cast<double>((samples.end - samples.begin) * shape.places),
                   scratch + block * stride, scratch + block * stride + shape.channels});
  }
  merge_moments(all, shape.channels, moments);
}

double merge_moments(std::span<const RankMoments> ranks, std::int64_t channels,
                     const Moments& merged) {
  std::fill_n(merged.mean, channels, 0.0);
  std::fill_n(merged.m2, channels, 0.0);
  double count = 0;
  for (const RankMoments& one : ranks) {
    if (one.count == 0) continue;
    const MergeWeights weights = merge_weights(count, one.count);
    for (std::int64_t c = 0; c < channels; ++c) {
      merge_into(merged.mean[c], merged.m2[c], one.mean[c], one.m2[c], weights);
    }
    count += one.count;
  }
  return count;
}

void batch_normalise(const BatchNormalise& norm, const Workers& workers) {
  const std::int64_t channels = norm.shape.channels;
  const std::vector<double> weight = as_doubles(norm.weight, channels, 1);
  const std::vector<double> bias = as_doubles(norm.bias, channels, 0);
  Coefficients numbers(channels, 3, is_wide(norm.x));
  for (std::int64_t c = 0; c < channels; ++c) {
    const double scale = norm.rstd[c] * weight[static_cast<std::size_t>(c)];
    const double rest = norm.mean[c] - numbers.rounded(norm.mean[c]);
    numbers.set(0, c, norm.mean[c]);
    numbers.set(1, c, scale);
    numbers.set(2, c, bias[static_cast<std::size_t>(c)] - rest * scale);
  }
  const KernelSet& set = kernels();
  const BatchCoefficients coefficients = numbers.get();
  for_each_piece(norm.shape, workers,
                 [&](const BatchPart& part) { set.batch_normalise(norm, part, coefficients); });
}

void batch_backward_reduce(const BatchGradient& gradient, double* sum_dy, double* sum_dy_xmu,
                           double* scratch, const Workers& workers) {
  const KernelSet& set = kernels();
  const std::int64_t channels = gradient.shape.channels;
  const std::int64_t blocks = blocks_of(gradient.shape);
  const std::int64_t stride = 2 * channels;
  const Coefficients numbers = centres(gradient);
  const BatchCoefficients coefficients = numbers.get();
  std::fill_n(scratch, blocks * stride, 0.0);
  for_each_part(gradient.shape, workers, [&](const BatchPart& part, std::int64_t block) {
    double* partial = scratch + block * stride;
    set.batch_backward_reduce(gradient, part, coefficients, partial, partial + channels);
  });
  for (std::int64_t c = 0; c < channels; ++c) {
    const double rest = gradient.mean[c] - numbers.rounded(gradient.mean[c]);
    sum_dy[c] = sum_blocks(scratch + c, blocks, stride);
    sum_dy_xmu[c] = sum_blocks(scratch + channels + c, blocks, stride) - rest * sum_dy[c];
  }
}

void batch_backward_apply(const BatchBackwardApply& apply, const Workers& workers) {
  const BatchGradient& gradient = apply.gradient;
  const std::int64_t channels = gradient.shape.channels;
  const std::vector<double> weight = as_doubles(apply.weight, channels, 1);
  Coefficients numbers(channels, 4, is_wide(gradient.x));
  for (std::int64_t c = 0; c < channels; ++c) {
    const double rstd = apply.rstd[c];
    const double of_dy = rstd * weight[static_cast<std::size_t>(c)];
    const double mean_dy = apply.mean_dy == nullptr ? 0 : apply.mean_dy[c];
    const double of_x =
        apply.mean_dy_xmu == nullptr ? 0 : -of_dy * rstd * rstd * apply.mean_dy_xmu[c];
    const double rest = gradient.mean[c] - numbers.rounded(gradient.mean[c]);
    numbers.set(0, c, gradient.mean[c]);
    numbers.set(1, c, of_dy);
    numbers.set(2, c, of_x);
    numbers.set(3, c, -of_dy * mean_dy - of_x * rest);
  }
  const KernelSet& set = kernels();
  const BatchCoefficients coefficients = numbers.get();
  for_each_piece(gradient.shape, workers, [&](const BatchPart& part) {
    set.batch_backward_apply(apply, part, coefficients);
  });
}

}  // namespace mezzo::kernels
