#include "insight/tensor_range.h"

#include <ATen/ops/view_as_real.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "insight/unobserved.h"

#include "core/scalar_type.h"

namespace mezzo::insight {

namespace {

bool has_values(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 &&
         (at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type()));
}

/// The values as real numbers in dense memory of the host; may share it.
at::Tensor on_host(const at::Tensor& tensor) {
  at::Tensor values = tensor.is_sparse() ? tensor._values() : tensor;
  if (values.layout() != at::kStrided) values = values.to_dense();
  if (values.is_conj()) values = values.resolve_conj();
  if (values.is_neg()) values = values.resolve_neg();
  if (values.is_complex()) values = at::view_as_real(values);
  if (!values.device().is_cpu()) values = values.cpu();
  if (!is_network_type(values.scalar_type())) values = values.to(at::kFloat);
  return values.contiguous();
}

template <typename T>
Finiteness scan(const T* values, std::int64_t count) {
  Finiteness found;
  constexpr std::int64_t kBlock = 1024;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = std::min(count, begin + kBlock);
    // x - x is zero for finite values alone; the sum of such differences vectorises.
    float spoiled = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const float value = static_cast<float>(values[i]);
      spoiled += value - value;
    }
    if (spoiled == 0) continue;
    for (std::int64_t i = begin; i < end; ++i) {
      const double value = static_cast<double>(values[i]);
      found.nan = found.nan || std::isnan(value);
      found.inf = found.inf || std::isinf(value);
    }
    if (found.nan && found.inf) break;
  }
  return found;
}

template <typename Visit>
auto with_values(const at::Tensor& host, const Visit& visit) {
  switch (host.scalar_type()) {
    case at::kDouble:
      return visit(host.const_data_ptr<double>());
    case at::kHalf:
      return visit(host.const_data_ptr<at::Half>());
    case at::kBFloat16:
      return visit(host.const_data_ptr<at::BFloat16>());
    default:
      return visit(host.const_data_ptr<float>());
  }
}

std::vector<std::int64_t> place_of(std::int64_t index, at::IntArrayRef sizes) {
  std::vector<std::int64_t> place(sizes.size());
  for (std::size_t i = sizes.size(); i-- > 0;) {
    place[i] = index % sizes[i];
    index /= sizes[i];
  }
  return place;
}

}  // namespace

Finiteness finiteness_of(const at::Tensor& tensor) {
  if (!has_values(tensor)) return {};
  const at::Tensor host = on_host(tensor);
  return with_values(host, [&](const auto* values) { return scan(values, host.numel()); });
}

TensorRange range_of(const at::Tensor& tensor) {
  TensorRange range;
  if (!tensor.defined()) return range;
  range.dtype = tensor.scalar_type();
  range.sizes = tensor.sizes().vec();
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  range.min = range.max = kNone;
  if (tensor.numel() == 0) return range;
  const at::Tensor source = has_values(tensor) ? tensor : tensor.to(at::kDouble);
  const at::Tensor host = on_host(source);
  double largest = -1;
  std::int64_t largest_at = -1, not_finite_at = -1;
  with_values(host, [&](const auto* values) {
    for (std::int64_t i = 0; i < host.numel(); ++i) {
      const double value = static_cast<double>(values[i]);
      if (!std::isfinite(value)) {
        ++(std::isnan(value) ? range.nans : range.infs);
        if (not_finite_at < 0) not_finite_at = i;
        continue;
      }
      const double magnitude = std::fabs(value);
      if (magnitude > largest) largest_at = i;
      largest = std::max(largest, magnitude);
      range.min = std::isnan(range.min) ? value : std::min(range.min, value);
      range.max = std::isnan(range.max) ? value : std::max(range.max, value);
      if (magnitude == 0) {
        ++range.zeros;
      } else if (range.smallest == 0 || magnitude < range.smallest) {
        range.smallest = magnitude;
      }
    }
    return 0;
  });
  if (host.sizes() != tensor.sizes()) return range;
  if (largest_at >= 0) range.largest_at = place_of(largest_at, tensor.sizes());
  if (not_finite_at >= 0) range.not_finite_at = place_of(not_finite_at, tensor.sizes());
  return range;
}

double largest_magnitude(const TensorRange& range) {
  return std::isnan(range.max) ? 0 : std::max(std::fabs(range.min), std::fabs(range.max));
}

double relative_error(const at::Tensor& value, const at::Tensor& reference) {
  const auto doubles = [](const at::Tensor& tensor) {
    return tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  };
  const at::Tensor values = doubles(value), exact = doubles(reference);
  const double* const got = values.const_data_ptr<double>();
  const double* const wanted = exact.const_data_ptr<double>();
  double largest = 0, difference = 0;
  for (std::int64_t i = 0; i < std::min(values.numel(), exact.numel()); ++i) {
    if (!std::isfinite(wanted[i])) continue;
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::fabs(wanted[i]));
    difference = std::max(difference, std::fabs(got[i] - wanted[i]));
  }
  if (difference == 0) return 0;
  return largest == 0 ? std::numeric_limits<double>::infinity() : difference / largest;
}

double worst_error(const std::vector<at::Tensor>& values,
                   const std::vector<at::Tensor>& references) {
  const Unobserved unobserved;
  double worst = 0;
  for (std::size_t i = 0; i < std::min(values.size(), references.size()); ++i) {
    if (values[i].defined() && references[i].defined())
      worst = std::max(worst, relative_error(values[i], references[i]));
  }
  return worst;
}

bool is_additive_mask(const at::Tensor& tensor) {
  const TensorRange range = range_of(tensor);
  if (range.nans > 0 || range.infs == 0) return false;
  if (range.infs + range.zeros != tensor.numel()) return false;
  const at::Tensor host = on_host(tensor);
  return with_values(host, [&](const auto* values) {
    for (std::int64_t i = 0; i < host.numel(); ++i) {
      if (static_cast<double>(values[i]) > 0) return false;
    }
    return true;
  });
}

bool is_infinite_all(const at::Tensor& tensor) {
  return tensor.numel() > 0 && range_of(tensor).infs == tensor.numel();
}

bool holds_positive_infinity(const at::Tensor& tensor) {
  if (!has_values(tensor)) return false;
  const at::Tensor host = on_host(tensor);
  return with_values(host, [&](const auto* values) {
    return std::any_of(values, values + host.numel(), [](auto each) {
      return static_cast<double>(each) == std::numeric_limits<double>::infinity();
    });
  });
}

bool is_part_of_memory(const at::Tensor& tensor) {
  if (tensor.is_sparse() || !tensor.has_storage()) return false;
  const auto bytes = static_cast<std::size_t>(tensor.numel()) * tensor.itemsize();
  return bytes < tensor.storage().nbytes();
}

}  // namespace mezzo::insight
