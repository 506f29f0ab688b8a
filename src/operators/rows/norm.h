// The operator table, part: normalisation.
#pragma once

#include <array>

#include "operators/rows/row.h"

namespace mezzo::rows {

inline constexpr std::string_view kNorm =
    "mean and variance of many values lose their small parts in 16 bits";
inline constexpr std::string_view kBatchNorm =
    "the result has the type of the input; weights and statistics stay float, and the kernel "
    "computes in float";

inline constexpr std::array kNormRows{
    input_only(row("_batch_norm_impl_index", kNeutral, "----", kBatchNorm)),
    float_statistics(row("_fused_rms_norm", kFloat, "----", kNorm)),
    input_only(row("_native_batch_norm_legit.no_stats", kNeutral, "----", kBatchNorm)),
    updates_statistics(input_only(row("batch_norm", kNeutral, "-n--", kBatchNorm))),
    input_only(row("batch_norm_elemt", kNeutral, "----", kBatchNorm)),
    input_only(row("batch_norm_gather_stats", kNeutral, "----", kBatchNorm)),
    input_only(row("batch_norm_gather_stats_with_counts", kNeutral, "----", kBatchNorm)),
    input_only(row("batch_norm_stats", kNeutral, "----", kBatchNorm)),
    steep(guarded(row("cosine_similarity", kFloat, "f-f-", kNorm))),
    input_only(row("cudnn_batch_norm", kNeutral, "----", kBatchNorm)),
    float_statistics(row("group_norm", kFloat, "fff-", kNorm)),
    updates_statistics(float_statistics(row("instance_norm", kFloat, "-f--", kNorm))),
    float_statistics(row("layer_norm", kFloat, "fff-", kNorm)),
    input_only(row("miopen_batch_norm", kNeutral, "----", kBatchNorm)),
    updates_statistics(input_only(row("native_batch_norm", kNeutral, "-n--", kBatchNorm))),
    float_statistics(row("native_group_norm", kFloat, "----", kNorm)),
    float_statistics(row("native_layer_norm", kFloat, "--f-", kNorm)),
    steep(guarded(row("renorm", kFloat, "f-f-", kNorm))),
    float_statistics(row("rms_norm", kFloat, "----", kNorm)),
};

}  // namespace mezzo::rows
