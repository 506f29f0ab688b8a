// The operator table, part: reductions.
#pragma once

#include <array>

#include "operators/rows/row.h"

namespace mezzo::rows {

inline constexpr std::string_view kSum = "a sum of many values stops growing in 16 bits";
inline constexpr std::string_view kProd = "a product of many values leaves the range of 16 bits";
inline constexpr std::string_view kPowers = "sums powers: leaves the range of 16 bits";
inline constexpr std::string_view kLogSumExp = "sums exponentials";
inline constexpr std::string_view kQuantile =
    "interpolates between sorted values; LibTorch has no 16-bit kernel";
inline constexpr std::string_view kCovariance =
    "sums products of differences from a mean, which cancel in 16 bits";
inline constexpr std::string_view kSegments = "sums or picks values of each segment";
inline constexpr std::string_view kSelect = "picks values, which is exact in any type";

inline constexpr std::array kReductionRows{
    row("all", kNeutral, "-n--", kSelect),
    row("all.dim", kNeutral, "-n--", kSelect),
    row("all.dims", kNeutral, "-n--", kSelect),
    row("amax", kNeutral, "-n--", kSelect),
    row("amin", kNeutral, "-n--", kSelect),
    row("any", kNeutral, "-n--", kSelect),
    row("any.dim", kNeutral, "-n--", kSelect),
    row("any.dims", kNeutral, "-n--", kSelect),
    row("argmax", kNeutral, "-n--", kSelect),
    row("argmin", kNeutral, "-n--", kSelect),
    row("argsort", kNeutral, "-f--", kSelect),
    row("argsort.stable", kNeutral, "-f--", kSelect),
    one_type(lacks_low(row("cdist", kFloat, "--ff", kPowers))),
    steep(row("corrcoef", kFloat, "----", kCovariance)),
    one_type(row("cov", kFloat, "----", kCovariance)),
    steep(by_dtype(row("cumprod", kFloat, "f-f-", kProd))),
    steep(by_dtype(row("cumprod.dimname", kFloat, "f-f-", kProd))),
    by_dtype(row("cumsum", kFloat, "fff-", kSum)),
    by_dtype(row("cumsum.dimname", kFloat, "fff-", kSum)),
    steep(row("dist", kFloat, "f-f-", kPowers)),
    row("frobenius_norm.dim", kFloat, "--f-", kPowers),
    sums(row("histc", kNeutral, "-n--", kSelect)),
    lacks_low(by_dtype(row("linalg_matrix_norm", kFloat, "--f-", kPowers))),
    lacks_low(by_dtype(row("linalg_matrix_norm.str_ord", kFloat, "--f-", kPowers))),
    lacks_low(by_dtype(row("linalg_norm", kFloat, "-f--", kPowers))),
    lacks_low(by_dtype(row("linalg_norm.ord_str", kFloat, "-f--", kPowers))),
    steep(by_dtype(row("linalg_vector_norm", kFloat, "-ff-", kPowers))),
    guarded(row("logaddexp", kFloat, "-f--", kLogSumExp)),
    steep(row("logcumsumexp", kFloat, "----", kLogSumExp)),
    row("logsumexp", kFloat, "--f-", kLogSumExp),
    row("max", kNeutral, "-n--", kSelect),
    row("max.dim", kNeutral, "-n--", kSelect),
    guarded(row("max.other", kNeutral, "-n--", kSelect)),
    by_dtype(row("mean", kFloat, "-f--", kSum)),
    by_dtype(row("mean.dim", kFloat, "-f--", kSum)),
    row("min", kNeutral, "-n--", kSelect),
    row("min.dim", kNeutral, "-n--", kSelect),
    guarded(row("min.other", kNeutral, "-n--", kSelect)),
    lacks_low(row("nanquantile", kFloat, "---f", kQuantile)),
    lacks_low(row("nanquantile.scalar", kFloat, "---f", kQuantile)),
    by_dtype(row("nansum", kFloat, "-f--", kSum)),
    steep(by_append(row("norm.Scalar", kFloat, "fff-", kPowers))),
    steep(by_append(row("norm.ScalarOpt_dim", kFloat, "fff-", kPowers))),
    steep(row("norm.ScalarOpt_dim_dtype", kNeutral, "ff--", kDtypeGiven)),
    steep(row("norm.ScalarOpt_dtype", kNeutral, "ff--", kDtypeGiven)),
    steep(by_append(row("norm.names_ScalarOpt_dim", kFloat, "fff-", kPowers))),
    lacks_low(row("nuclear_norm", kFloat, "--f-", kPowers)),
    lacks_low(row("nuclear_norm.dim", kFloat, "--f-", kPowers)),
    lacks_low(row("pdist", kFloat, "--f-", kPowers)),
    steep(by_dtype(row("prod", kFloat, "ffff", kProd))),
    steep(by_dtype(row("prod.dim_Dimname", kFloat, "ffff", kProd))),
    steep(by_dtype(row("prod.dim_int", kFloat, "ffff", kProd))),
    lacks_low(row("quantile", kFloat, "-n-f", kQuantile)),
    lacks_low(row("quantile.scalar", kFloat, "-n-f", kQuantile)),
    sums(row("segment_reduce", kNeutral, "----", kSegments)),
    row("sort", kNeutral, "-n--", kSelect),
    row("sort.stable", kNeutral, "-n--", kSelect),
    steep(row("std", kFloat, "ff--", kPowers)),
    steep(row("std.correction", kFloat, "ff--", kPowers)),
    steep(row("std.dim", kFloat, "ff--", kPowers)),
    steep(row("std_mean", kFloat, "----", kPowers)),
    steep(row("std_mean.correction", kFloat, "----", kPowers)),
    steep(row("std_mean.dim", kFloat, "----", kPowers)),
    by_dtype(row("sum", kFloat, "fff-", kSum)),
    by_dtype(row("sum.dim_DimnameList", kFloat, "fff-", kSum)),
    by_dtype(row("sum.dim_IntList", kFloat, "fff-", kSum)),
    row("topk", kNeutral, "-f--", kSelect),
    lacks_low(row("trace", kFloat, "-f-f", kSum)),
    steep(row("var", kFloat, "ff--", kPowers)),
    steep(row("var.correction", kFloat, "ff--", kPowers)),
    steep(row("var.dim", kFloat, "ff--", kPowers)),
    steep(row("var_mean", kFloat, "-f--", kPowers)),
    steep(row("var_mean.correction", kFloat, "-f--", kPowers)),
    steep(row("var_mean.dim", kFloat, "-f--", kPowers)),
};

}  // namespace mezzo::rows
