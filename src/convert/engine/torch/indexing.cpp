// Operators that pick and place values by index.
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/scatter_reduce.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/unique_dim.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;

// Negative indices count from the end.
Tensor positive(const Tensor& indices, std::int64_t size) {
  const Tensor whole = indices.to(at::kLong);
  return at::where(whole.lt(0), whole.add(size), whole);
}

Tensors gather(const Call& c) {
  const Tensor& x = c.in(0);
  const std::int64_t axis = wrapped(c.integer("axis", 0), x.dim());
  const Tensor index = positive(c.in(1), x.size(axis));
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, index.sizes().begin(), index.sizes().end());
  return {at::index_select(x, axis, index.reshape({-1})).reshape(shape)};
}

Tensors gather_elements(const Call& c) {
  const Tensor& x = c.in(0);
  const std::int64_t axis = wrapped(c.integer("axis", 0), x.dim());
  return {at::gather(x, axis, positive(c.in(1), x.size(axis)))};
}

// The last axis of the indices as one list of indices per axis of the data.
torch::List<std::optional<Tensor>> index_lists(const Tensor& indices, const Tensor& x,
                                               std::int64_t batch) {
  torch::List<std::optional<Tensor>> lists;
  const std::int64_t rank = indices.dim();
  for (std::int64_t b = 0; b < batch; ++b) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(rank - 1), 1);
    shape[static_cast<std::size_t>(b)] = x.size(b);
    lists.push_back(at::arange(x.size(b), at::kLong).reshape(shape));
  }
  for (std::int64_t k = 0; k < indices.size(-1); ++k)
    lists.push_back(positive(indices.select(-1, k), x.size(batch + k)));
  return lists;
}

Tensors gather_nd(const Call& c) {
  const std::int64_t batch = c.integer("batch_dims", 0);
  return {at::index(c.in(0), index_lists(c.in(1).to(at::kLong), c.in(0), batch))};
}

std::string_view torch_reduction(const std::string& name) {
  if (name == "add") return "sum";
  if (name == "mul") return "prod";
  if (name == "max") return "amax";
  if (name == "min") return "amin";
  return name;
}

Tensors scatter(const Call& c) {
  const Tensor& x = c.in(0);
  const std::int64_t axis = wrapped(c.integer("axis", 0), x.dim());
  const Tensor index = positive(c.in(1), x.size(axis));
  const std::string how = c.text("reduction", "none");
  if (how == "none") return {at::scatter(x, axis, index, c.in(2))};
  return {at::scatter_reduce(x, axis, index, c.in(2), torch_reduction(how))};
}

Tensors scatter_nd(const Call& c) {
  const Tensor& x = c.in(0);
  const auto lists = index_lists(c.in(1).to(at::kLong), x, 0);
  const std::string how = c.text("reduction", "none");
  if (how == "none") return {at::index_put(x, lists, c.in(2))};
  if (how == "add") return {at::index_put(x, lists, c.in(2), true)};
  // One update after the other, in the order of the indices.
  Tensor result = x.clone();
  const Tensor indices = c.in(1).to(at::kLong).reshape({-1, c.in(1).size(-1)});
  std::vector<std::int64_t> shape{indices.size(0)};
  for (std::int64_t i = indices.size(-1); i < x.dim(); ++i) shape.push_back(x.size(i));
  const Tensor updates = c.in(2).reshape(shape);
  for (std::int64_t row = 0; row < indices.size(0); ++row) {
    Tensor place = result;
    for (std::int64_t k = 0; k < indices.size(1); ++k) {
      const auto at = indices[row][k].item<std::int64_t>();
      place = place.select(0, wrapped(at, place.size(0)));
    }
    const Tensor value = updates[row];
    place.copy_(how == "mul"   ? place.mul(value)
                : how == "max" ? place.maximum(value)
                               : place.minimum(value));
  }
  return {result};
}

Tensors non_zero(const Call& c) {
  return {at::nonzero(c.in(0)).transpose(0, 1)};
}

Tensors compress(const Call& c) {
  const bool flattens = !c.is_given("axis");
  const Tensor x = flattens ? c.in(0).reshape({-1}) : c.in(0);
  const std::int64_t axis = flattens ? 0 : wrapped(c.integer("axis", 0), x.dim());
  return {at::index_select(x, axis, at::nonzero(c.in(1)).reshape({-1}))};
}

Tensors one_hot(const Call& c) {
  const std::int64_t depth = c.list(1).at(0);
  const Tensor index = positive(c.in(0), depth).unsqueeze(-1);
  const Tensor& values = c.in(2);
  const Tensor is_it = index.eq(at::arange(depth, at::kLong));
  const Tensor hot = at::where(is_it, values[1], values[0]);
  return {hot.movedim(-1, wrapped(c.integer("axis", -1), hot.dim()))};
}

Tensors reverse_sequence(const Call& c) {
  const std::int64_t batch = c.integer("batch_axis", 1);
  const std::int64_t time = c.integer("time_axis", 0);
  const Tensor x = c.in(0).movedim({batch, time}, {0, 1});
  const Tensor lengths = c.in(1).to(at::kLong).unsqueeze(1);
  const Tensor step = at::arange(x.size(1), at::kLong).unsqueeze(0);
  Tensor index = at::where(step.lt(lengths), lengths.sub(1).sub(step), step);
  for (std::int64_t i = 2; i < x.dim(); ++i) index = index.unsqueeze(-1);
  return {at::gather(x, 1, index.expand(x.sizes())).movedim({0, 1}, {batch, time})};
}

// Values (or slices along an axis) once each, sorted or in the order in which they come first.
Tensors unique(const Call& c) {
  const bool flattens = !c.is_given("axis");
  const Tensor x = flattens ? c.in(0).reshape({-1}) : c.in(0);
  const std::int64_t axis = flattens ? 0 : wrapped(c.integer("axis", 0), x.dim());
  if (x.numel() == 0) refuse("an empty input");
  auto [values, inverse, counts] = at::unique_dim(x, axis, true, true, true);
  const std::int64_t size = values.size(axis);
  std::vector<std::int64_t> first(static_cast<std::size_t>(size), -1);
  std::vector<std::int64_t> order;  // sorted places, by first occurrence
  inverse = inverse.reshape({-1}).contiguous();
  const auto* places = inverse.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < inverse.numel(); ++i) {
    if (first[static_cast<std::size_t>(places[i])] >= 0) continue;
    first[static_cast<std::size_t>(places[i])] = i;
    order.push_back(places[i]);
  }
  const Tensor indices = at::tensor(first, at::kLong);
  if (c.integer("sorted", 1) != 0) return {values, indices, inverse, counts};
  const Tensor by_first = at::tensor(order, at::kLong);
  const Tensor rank = at::argsort(by_first);  // where each sorted place comes now
  return {at::index_select(values, axis, by_first), at::index_select(indices, 0, by_first),
          at::index_select(rank, 0, inverse), at::index_select(counts, 0, by_first)};
}

struct Box {
  float y1, x1, y2, x2;
  float area() const { return (y2 - y1) * (x2 - x1); }
};

float overlap(const Box& a, const Box& b) {
  const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (height <= 0 || width <= 0) return 0;
  const float common = height * width;
  const float joined = a.area() + b.area() - common;
  return joined > 0 ? common / joined : 0;
}

std::vector<Box> boxes_of(const Tensor& rows, bool by_center) {
  const Tensor all = rows.to(at::kFloat).contiguous();
  const auto* data = all.const_data_ptr<float>();
  std::vector<Box> boxes;
  for (std::int64_t i = 0; i < all.size(0); ++i, data += 4) {
    if (by_center) {
      const float h = data[3] / 2;
      const float w = data[2] / 2;
      boxes.push_back({data[1] - h, data[0] - w, data[1] + h, data[0] + w});
    } else {
      boxes.push_back({std::min(data[0], data[2]), std::min(data[1], data[3]),
                       std::max(data[0], data[2]), std::max(data[1], data[3])});
    }
  }
  return boxes;
}

Tensors non_max_suppression(const Call& c) {
  const std::int64_t most = c.has(2) ? c.list(2).at(0) : 0;
  const double close = c.has(3) ? c.in(3).item<double>() : 0;
  std::vector<std::int64_t> selected;
  for (std::int64_t batch = 0; batch < c.in(0).size(0); ++batch) {
    const std::vector<Box> boxes = boxes_of(c.in(0)[batch], c.integer("center_point_box", 0) != 0);
    for (std::int64_t type = 0; type < c.in(1).size(1); ++type) {
      const Tensor scores = c.in(1)[batch][type].to(at::kFloat).contiguous();
      const auto* score = scores.const_data_ptr<float>();
      std::vector<std::size_t> order;
      for (std::size_t i = 0; i < boxes.size(); ++i) {
        if (!c.has(4) || static_cast<double>(score[i]) > c.in(4).item<double>()) order.push_back(i);
      }
      std::ranges::stable_sort(order, [&](auto a, auto b) { return score[a] > score[b]; });
      std::vector<std::size_t> taken;
      for (const std::size_t i : order) {
        if (static_cast<std::int64_t>(taken.size()) >= most) break;
        const bool is_covered = std::ranges::any_of(taken, [&](std::size_t other) {
          return static_cast<double>(overlap(boxes[i], boxes[other])) > close;
        });
        if (is_covered) continue;
        taken.push_back(i);
        selected.insert(selected.end(), {batch, type, static_cast<std::int64_t>(i)});
      }
    }
  }
  return {at::tensor(selected, at::kLong).reshape({-1, 3})};
}

// Sorted by name.
constexpr TorchOperator kIndexingOperators[] = {
    {"Compress", compress},
    {"Gather", gather},
    {"GatherElements", gather_elements},
    {"GatherND", gather_nd},
    {"NonMaxSuppression", non_max_suppression},
    {"NonZero", non_zero},
    {"OneHot", one_hot},
    {"ReverseSequence", reverse_sequence},
    {"Scatter", scatter},
    {"ScatterElements", scatter},
    {"ScatterND", scatter_nd},
    {"Unique", unique},
};

}  // namespace

std::span<const TorchOperator> indexing_operators() {
  return kIndexingOperators;
}

}  // namespace mezzo::convert
