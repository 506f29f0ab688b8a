#include "insight/tally.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/scalar_type.h"

namespace mezzo::insight {

namespace {

/// A floating type by its bits.
template <typename Work>
struct FloatBits;
template <>
struct FloatBits<float> {
  using Word = std::uint32_t;
  static constexpr int kMantissa = 23, kBias = 127, kFields = 256;
};
template <>
struct FloatBits<double> {
  using Word = std::uint64_t;
  static constexpr int kMantissa = 52, kBias = 1023, kFields = 2048;
};

std::size_t bucket_of(int exponent) {
  return static_cast<std::size_t>(std::clamp(exponent, Tally::kLowest, Tally::kHighest) -
                                  Tally::kLowest);
}

/// Values are told apart by their bits without the sign: these order as magnitudes do.
template <typename Work, typename Source>
Tally tally_of(const Source* values, std::int64_t count, const DTypeRow& type) {
  using Bits = FloatBits<Work>;
  using Word = typename Bits::Word;
  constexpr Word kMagnitude = static_cast<Word>(-1) >> 1;
  const Word infinity = std::bit_cast<Word>(std::numeric_limits<Work>::infinity());
  const Word normal = std::bit_cast<Word>(static_cast<Work>(type.smallest_normal));
  const Word full = std::bit_cast<Word>(static_cast<Work>(type.largest));
  constexpr std::int64_t kLanes = 4;  // equal exponents in a row would wait for each other
  std::vector<std::int64_t> fields(kLanes * Bits::kFields, 0);
  std::array<double, kLanes> squares{};
  Word largest = 0, smallest = infinity;
  std::int64_t zeros = 0, nans = 0, subnormals = 0, saturated = 0;
  Tally tally;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto lane = static_cast<std::size_t>(i % kLanes);
    const Work value = static_cast<Work>(values[i]);
    const Word bits = std::bit_cast<Word>(value) & kMagnitude;
    const auto field = static_cast<std::size_t>(bits >> Bits::kMantissa);
    ++fields[lane * Bits::kFields + field];
    zeros += static_cast<std::int64_t>(bits == 0);
    nans += static_cast<std::int64_t>(bits > infinity);
    subnormals += static_cast<std::int64_t>(bits != 0 && bits < normal);
    saturated += static_cast<std::int64_t>(bits >= full && bits <= infinity);
    if (bits >= infinity) continue;
    squares[lane] += static_cast<double>(value) * static_cast<double>(value);
    largest = std::max(largest, bits);
    if (bits != 0) smallest = std::min(smallest, bits);
    // Subnormal numbers of the working type have no exponent of their own.
    if (field == 0 && bits != 0) ++tally.exponents[bucket_of(std::ilogb(value))];
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    tally.squares += squares[lane];
    for (int field = 1; field + 1 < Bits::kFields; ++field) {
      tally.exponents[bucket_of(field - Bits::kBias)] +=
          fields[lane * Bits::kFields + static_cast<std::size_t>(field)];
    }
  }
  tally.count = count;
  tally.zeros = zeros;
  tally.nans = nans;
  tally.subnormals = subnormals;
  tally.saturated = saturated;
  tally.largest = static_cast<double>(std::bit_cast<Work>(largest));
  tally.smallest = static_cast<double>(std::bit_cast<Work>(smallest));
  return tally;
}

template <typename Work, typename Source>
Tally tally_in_parts(const Source* values, std::int64_t count, const DTypeRow& type) {
  constexpr std::int64_t kPart = std::int64_t{1} << 17;
  const std::int64_t parts = (count + kPart - 1) / kPart;
  std::vector<Tally> tallies(static_cast<std::size_t>(parts));
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      tallies[static_cast<std::size_t>(part)] =
          tally_of<Work>(values + part * kPart, std::min(kPart, count - part * kPart), type);
    }
  });
  Tally all;
  for (const Tally& tally : tallies) all.add(tally);
  return all;
}

/// The stored values as real floating numbers.
at::Tensor stored(const at::Tensor& tensor) {
  at::Tensor values = tensor.is_sparse() ? tensor._values() : tensor.detach();
  if (values.is_conj()) values = values.resolve_conj();
  if (values.is_neg()) values = values.resolve_neg();
  if (values.is_complex()) values = at::view_as_real(values);
  const DTypeRow* const row = row_of(values.scalar_type());
  return row != nullptr && row->is_float ? values : values.to(at::kFloat);
}

/// One value a number of the tally, then the exponents.
at::Tensor device_slice(const at::Tensor& values, const DTypeRow& type) {
  const at::Tensor wide = values.scalar_type() == at::kDouble ? values : values.to(at::kFloat);
  const at::Tensor magnitude = wide.abs();
  const at::Tensor finite = magnitude.lt(std::numeric_limits<double>::infinity());
  const at::Tensor counted = at::where(finite, magnitude, at::zeros({}, magnitude.options()));
  const at::Tensor has_exponent = counted.gt(0);
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor none = at::full({}, infinity, magnitude.options());
  // Values without an exponent lie outside of the histogram.
  constexpr double kOutside = 1000;
  const at::Tensor exponents = at::where(
      has_exponent,
      std::get<1>(at::frexp(counted)).to(at::kFloat).sub(1).clamp(Tally::kLowest, Tally::kHighest),
      at::full({}, kOutside, counted.options().dtype(at::kFloat)));
  const auto sum = [](const at::Tensor& which) { return which.sum().to(at::kDouble); };
  // Limits that LibTorch would round for a wide type would move its end.
  const bool is_own = type.largest >= std::numeric_limits<float>::max();
  const at::Tensor full = is_own && wide.scalar_type() == at::kFloat
                              ? magnitude.ge(std::numeric_limits<float>::max())
                              : magnitude.ge(type.largest);
  const at::Tensor numbers = at::stack(
      {sum(counted.to(at::kDouble).square()), counted.amax().to(at::kDouble),
       at::where(has_exponent, counted, none).amin().to(at::kDouble), sum(magnitude.eq(0)),
       sum(has_exponent.logical_and(counted.lt(type.smallest_normal))), sum(full),
       sum(at::isnan(wide))});
  const at::Tensor histogram =
      at::histc(exponents, Tally::kBuckets, Tally::kLowest - 0.5, Tally::kHighest + 0.5);
  return at::cat({numbers, histogram.to(at::kDouble)});
}

}  // namespace

void Tally::add(const Tally& other) {
  count += other.count;
  squares += other.squares;
  largest = std::max(largest, other.largest);
  smallest = std::min(smallest, other.smallest);
  zeros += other.zeros;
  subnormals += other.subnormals;
  saturated += other.saturated;
  nans += other.nans;
  for (std::size_t i = 0; i < exponents.size(); ++i) exponents[i] += other.exponents[i];
}

report::Magnitudes Tally::magnitudes(const DTypeRow& type) const {
  report::Magnitudes result{.type = std::string(type.name), .count = count};
  if (count == 0) return result;
  const auto share = [this](std::int64_t part) {
    return static_cast<double>(part) / static_cast<double>(count);
  };
  result.norm = std::sqrt(squares);
  result.largest = largest;
  result.smallest = std::isinf(smallest) ? 0 : smallest;
  result.zeros = share(zeros);
  result.subnormals = share(subnormals);
  result.saturated = share(saturated);
  result.nans = share(nans);
  const auto is_used = [](std::int64_t number) { return number != 0; };
  const auto first = std::ranges::find_if(exponents, is_used);
  if (first == exponents.end()) return result;
  const auto last = std::find_if(exponents.rbegin(), exponents.rend(), is_used).base();
  result.first_exponent = kLowest + static_cast<int>(first - exponents.begin());
  result.exponents.assign(first, last);
  return result;
}

Tally tally_on_host(const at::Tensor& tensor, const DTypeRow& type) {
  at::Tensor values = stored(tensor).cpu();
  // The order does not matter.
  if (!values.is_non_overlapping_and_dense()) values = values.contiguous();
  const std::int64_t count = values.numel();
  if (count == 0) return {};
  switch (values.scalar_type()) {
    case at::kDouble:
      return tally_in_parts<double>(values.const_data_ptr<double>(), count, type);
    case at::kHalf:
      return tally_in_parts<float>(values.const_data_ptr<at::Half>(), count, type);
    case at::kBFloat16:
      return tally_in_parts<float>(values.const_data_ptr<at::BFloat16>(), count, type);
    default:
      return tally_in_parts<float>(values.const_data_ptr<float>(), count, type);
  }
}

at::Tensor tally_on_device(const at::Tensor& tensor, const DTypeRow& type) {
  // Slices bound the memory, and counts in float stay exact.
  constexpr std::int64_t kSlice = std::int64_t{1} << 24;
  const at::Tensor values = stored(tensor).reshape({-1});
  const std::int64_t count = values.numel();
  std::vector<at::Tensor> slices;
  for (std::int64_t begin = 0; begin < count; begin += kSlice)
    slices.push_back(device_slice(values.slice(0, begin, begin + kSlice), type));
  if (slices.empty()) return {};
  const at::Tensor counts = at::full({1}, static_cast<double>(count), slices.front().options());
  const at::Tensor all = at::stack(slices);
  return at::cat({counts, all.select(1, 0).sum().reshape({1}), all.select(1, 1).amax().reshape({1}),
                  all.select(1, 2).amin().reshape({1}), all.slice(1, 3).sum(0)});
}

Tally read_tally(const at::Tensor& numbers) {
  Tally tally;
  if (!numbers.defined()) return tally;
  const at::Tensor host = numbers.cpu();
  const double* number = host.const_data_ptr<double>();
  const auto whole = [&] { return static_cast<std::int64_t>(*number++); };
  tally.count = whole();
  tally.squares = *number++;
  tally.largest = *number++;
  tally.smallest = *number++;
  tally.zeros = whole();
  tally.subnormals = whole();
  tally.saturated = whole();
  tally.nans = whole();
  for (std::int64_t& exponent : tally.exponents) exponent = whole();
  return tally;
}

PendingTally::PendingTally(const at::Tensor& values, const DTypeRow& type) {
  if (!values.defined()) return;
  if (values.device().is_cpu()) {
    here_ = tally_on_host(values, type);
  } else {
    there_ = tally_on_device(values, type);
  }
}

}  // namespace mezzo::insight
