#include "bridge/outputs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "bridge/list_buffers.h"

namespace mezzo::bridge {
namespace {

/// A step of so many bytes, more than none, that is taken `least` to `most` times.
struct Steps {
  std::int64_t bytes, least, most;
};

// The floor of a / b, for b above 0.
std::int64_t rounded_down(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}
std::int64_t rounded_up(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

// Can they add up to a number from `least` to `most`? The longest come first: what the others still
// reach leaves few choices, one or two of a dimension in what a slice or a permutation gives.
bool can_add_up(const Steps* steps, const Steps* end, std::int64_t least, std::int64_t most) {
  if (steps == end) return least <= 0 && most >= 0;
  std::int64_t back = 0;
  std::int64_t forth = 0;
  for (const Steps* other = steps + 1; other != end; ++other) {
    back += other->bytes * other->least;
    forth += other->bytes * other->most;
  }
  const std::int64_t first = std::max(steps->least, rounded_up(least - forth, steps->bytes));
  const std::int64_t last = std::min(steps->most, rounded_down(most - back, steps->bytes));
  for (std::int64_t count = first; count <= last; ++count) {
    const std::int64_t taken = count * steps->bytes;
    if (can_add_up(steps + 1, end, least - taken, most - taken)) return true;
  }
  return false;
}

void longest_first(std::vector<Steps>& steps) {
  std::sort(steps.begin(), steps.end(),
            [](const Steps& a, const Steps& b) { return a.bytes > b.bytes; });
}

// Steps of one length are one kind of step, or columns of one matrix would be tried row by row.
void join_equal(std::vector<Steps>& steps) {
  longest_first(steps);
  std::size_t kept = 0;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].bytes == steps[kept].bytes) {
      steps[kept].least += steps[i].least;
      steps[kept].most += steps[i].most;
    } else {
      steps[++kept] = steps[i];
    }
  }
  if (!steps.empty()) steps.resize(kept + 1);
}

const std::byte* begin_of(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

/// An output that has memory.
struct Placed {
  const at::Tensor* tensor;
  std::size_t index;
  c10::Device device;
  const std::byte *begin, *end;

  Placed(const at::Tensor& output, std::size_t i)
      : tensor(&output), index(i), device(output.device()), begin(begin_of(output)), end(begin) {
    std::int64_t last = 0;
    for (std::int64_t d = 0; d < output.dim(); ++d) {
      last += (output.size(d) - 1) * output.stride(d);
    }
    end += (last + 1) * output.element_size();
  }
};

bool has_memory(const at::Tensor& tensor) {
  return tensor.numel() > 0 && tensor.has_storage() && tensor.storage().data() != nullptr;
}

}  // namespace

bool overlaps_itself(const at::Tensor& tensor) {
  if (tensor.numel() < 2 || tensor.is_contiguous() ||
      tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense()) {
    return false;
  }
  const std::int64_t width = tensor.element_size();
  std::vector<Steps> steps;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    const std::int64_t most = tensor.size(d) - 1;
    if (most == 0) continue;
    if (tensor.stride(d) == 0) return true;
    steps.push_back({tensor.stride(d) * width, -most, most});
  }
  longest_first(steps);
  // From one element to another, where the longest step that is taken goes forth.
  for (Steps& longest : steps) {
    longest.least = 1;
    if (can_add_up(&longest, steps.data() + steps.size(), 1 - width, width - 1)) return true;
  }
  return false;
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  std::vector<Steps> steps;
  for (std::int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) > 1 && a.stride(d) > 0) {
      steps.push_back({a.stride(d) * a.element_size(), 0, a.size(d) - 1});
    }
  }
  for (std::int64_t d = 0; d < b.dim(); ++d) {
    if (b.size(d) > 1 && b.stride(d) > 0) {
      steps.push_back({b.stride(d) * b.element_size(), 1 - b.size(d), 0});
    }
  }
  join_equal(steps);
  const std::int64_t distance = begin_of(b) - begin_of(a);
  return can_add_up(steps.data(), steps.data() + steps.size(), distance - a.element_size() + 1,
                    distance + b.element_size() - 1);
}

void check_outputs(std::string_view where, const std::function<std::string(std::size_t)>& name,
                   at::TensorList out) {
  std::vector<Placed> placed;
  placed.reserve(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (overlaps_itself(out[i])) {
      raise<ConfigError>(where, name(i), " overlaps itself: sizes ", out[i].sizes(), ", strides ",
                         out[i].strides());
    }
    if (has_memory(out[i])) placed.emplace_back(out[i], i);
  }
  const auto place = [](const Placed& of) {
    return std::tuple(of.device.type(), of.device.index(),
                      reinterpret_cast<std::uintptr_t>(of.begin));
  };
  std::sort(placed.begin(), placed.end(),
            [&](const Placed& a, const Placed& b) { return place(a) < place(b); });
  const std::less<> before;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    for (std::size_t j = i + 1; j < placed.size() && placed[j].device == placed[i].device &&
                                before(placed[j].begin, placed[i].end);
         ++j) {
      if (!overlap(*placed[i].tensor, *placed[j].tensor)) continue;
      const auto [first, second] = std::minmax(placed[i].index, placed[j].index);
      raise<ConfigError>(where, name(first), " and ", name(second), " overlap in memory");
    }
  }
}

void check_outputs(std::string_view where, const char* list, at::TensorList out) {
  check_outputs(
      where, [&](std::size_t i) { return nth(list, i); }, out);
}

}  // namespace mezzo::bridge
