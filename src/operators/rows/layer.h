// The operator table, part: interpolation, pooling, padding, embedding.
#pragma once

#include <array>

#include "operators/rows/row.h"

namespace mezzo::rows {

inline constexpr std::string_view kUpsample =
    "interpolation weights and sums of neighbours in float";
inline constexpr std::string_view kGrid =
    "positions in the image need more digits than 16 bits have";
inline constexpr std::string_view kAvgPool3d = "LibTorch has no 16-bit kernel for processors";
inline constexpr std::string_view kPool =
    "picks or averages a few neighbours; LibTorch has 16-bit kernels that sum in float";
inline constexpr std::string_view kSamples = "its random samples must have the type of its input";
inline constexpr std::string_view kPad = "copies values";
inline constexpr std::string_view kDropout = "zeroes or scales values";
inline constexpr std::string_view kEmbedding = "copies rows of the weight";
inline constexpr std::string_view kFakeQuantize = "rounds to a grid finer than 16 bits";
inline constexpr std::string_view kColumns = "rearranges values";

inline constexpr std::array kLayerRows{
    sums(row("_grid_sampler_2d_cpu_fallback", kFloat, "---f", kGrid)),
    lacks_low(row("_upsample_bicubic2d_aa", kFloat, "f-f-", kUpsample)),
    lacks_low(row("_upsample_bicubic2d_aa.vec", kFloat, "f---", kUpsample)),
    lacks_low(row("_upsample_bilinear2d_aa", kFloat, "f-f-", kUpsample)),
    lacks_low(row("_upsample_bilinear2d_aa.vec", kFloat, "f---", kUpsample)),
    row("_upsample_nearest_exact1d", kFloat, "f-f-", kUpsample),
    row("_upsample_nearest_exact1d.vec", kFloat, "f---", kUpsample),
    row("_upsample_nearest_exact2d", kFloat, "f-f-", kUpsample),
    row("_upsample_nearest_exact2d.vec", kFloat, "f---", kUpsample),
    row("_upsample_nearest_exact3d", kFloat, "f-f-", kUpsample),
    row("_upsample_nearest_exact3d.vec", kFloat, "f---", kUpsample),
    sums(alone(row("adaptive_avg_pool1d", kNeutral, "-n--", kPool))),
    sums(alone(row("adaptive_avg_pool2d", kNeutral, "-n--", kPool))),
    sums(alone(row("adaptive_avg_pool3d", kNeutral, "-n-f", kPool))),
    row("adaptive_max_pool1d", kNeutral, "-n--", kPool),
    sums(row("adaptive_max_pool2d", kNeutral, "-n--", kPool)),
    sums(row("adaptive_max_pool3d", kNeutral, "-n-f", kPool)),
    row("affine_grid_generator", kFloat, "-n--", kGrid),
    row("avg_pool1d", kNeutral, "-n--", kPool),
    sums(row("avg_pool2d", kNeutral, "-n--", kPool)),
    sums(lacks_low(row("avg_pool3d", kFloat, "-n-f", kAvgPool3d))),
    sums(row("col2im", kNeutral, "-n--", kColumns)),
    guarded(row("constant_pad_nd", kNeutral, "----", kPad)),
    row("dropout", kNeutral, "-n--", kDropout),
    sums_gradients(row("embedding", kNeutral, "-n--", kEmbedding)),
    lacks_low(row("fake_quantize_per_tensor_affine", kFloat, "---f", kFakeQuantize)),
    lacks_low(row("fake_quantize_per_tensor_affine.tensor_qparams", kFloat, "----", kFakeQuantize)),
    sums(row("fractional_max_pool2d", kPromote, "---f", kSamples)),
    sums(row("fractional_max_pool3d", kPromote, "---f", kSamples)),
    sums(one_type(row("grid_sampler", kFloat, "fnpf", kGrid))),
    sums(one_type(row("grid_sampler_2d", kFloat, "---f", kGrid))),
    sums(one_type(row("grid_sampler_3d", kFloat, "---f", kGrid))),
    sums_gradients(row("im2col", kNeutral, "-n--", kColumns)),
    row("max_pool1d", kNeutral, "-n--", kPool),
    row("max_pool2d", kNeutral, "-n--", kPool),
    row("max_pool3d", kNeutral, "-n-f", kPool),
    sums(row("max_pool2d_with_indices", kNeutral, "----", kPool)),
    sums(row("max_pool3d_with_indices", kNeutral, "----", kPool)),
    row("max_unpool2d", kNeutral, "---f", kPool),
    row("max_unpool3d", kNeutral, "---f", kPool),
    row("one_hot", kNeutral, "-n--", kEmbedding),
    row("pad", kNeutral, "----", kPad),
    row("pixel_shuffle", kNeutral, "-n--", kColumns),
    row("pixel_unshuffle", kNeutral, "-n--", kColumns),
    row("reflection_pad1d", kNeutral, "---f", kPad),
    row("reflection_pad2d", kNeutral, "---f", kPad),
    row("reflection_pad3d", kNeutral, "----", kPad),
    sums(row("replication_pad1d", kNeutral, "---f", kPad)),
    sums(row("replication_pad2d", kNeutral, "---f", kPad)),
    sums(row("replication_pad3d", kNeutral, "---f", kPad)),
    row("upsample_bicubic2d", kFloat, "f-f-", kUpsample),
    row("upsample_bicubic2d.vec", kFloat, "f---", kUpsample),
    row("upsample_bilinear2d", kFloat, "fnf-", kUpsample),
    row("upsample_bilinear2d.vec", kFloat, "fn--", kUpsample),
    row("upsample_linear1d", kFloat, "f-f-", kUpsample),
    row("upsample_linear1d.vec", kFloat, "f---", kUpsample),
    row("upsample_nearest1d", kFloat, "f-f-", kUpsample),
    row("upsample_nearest1d.vec", kFloat, "f---", kUpsample),
    row("upsample_nearest2d", kFloat, "fnf-", kUpsample),
    row("upsample_nearest2d.vec", kFloat, "fn--", kUpsample),
    row("upsample_nearest3d", kFloat, "f-f-", kUpsample),
    row("upsample_nearest3d.vec", kFloat, "f---", kUpsample),
    row("upsample_trilinear3d", kFloat, "f-f-", kUpsample),
    row("upsample_trilinear3d.vec", kFloat, "f---", kUpsample),
};

}  // namespace mezzo::rows
