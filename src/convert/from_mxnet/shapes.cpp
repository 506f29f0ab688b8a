// Operators that arrange values anew.
#include <algorithm>
#include <limits>
#include <numeric>

#include "convert/from_mxnet/reshape.h"
#include "convert/from_mxnet/rows.h"
#include "core/raise.h"

namespace mezzo::convert::mxnet {
namespace {

constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kBeforeFirst = std::numeric_limits<std::int64_t>::min();

Operands reshape(Call& call) {
  const Dims codes = call.list("shape");
  if (codes.empty())
    call.refuse("there is no shape; expected one (target_shape is of old releases)");
  return {reshape_by_codes(call, call.input(0), codes, call.flag("reverse"))};
}

Operands flatten(Call& call) {
  const Operand& x = call.input(0);
  Dims dims{kUnknownSize, kUnknownSize};
  if (x.dims && !x.dims->empty()) dims = {x.dims->front(), product(std::span(*x.dims).subspan(1))};
  return {call.add("Flatten", {x}, {{"axis", std::int64_t{1}}}, {x.element, dims})};
}

Operands reshape_like(Call& call) {
  if (call.has("lhs_begin") || call.has("lhs_end") || call.has("rhs_begin") || call.has("rhs_end"))
    call.refuse("parts of shapes; expected whole ones");
  const Operand& like = call.input(1);
  return {call.add("Reshape", {call.input(0), call.sizes(like)}, {},
                   {call.input(0).element, like.dims})};
}

Operands expand_dims(Call& call) {
  const std::int64_t axis = call.integer("axis", 0);
  const Operand& x = call.input(0);
  return {call.unsqueeze(x, {axis < -1 ? axis + call.rank(x) + 1 : axis})};
}

Operands squeeze(Call& call) {
  const Operand& x = call.input(0);
  Dims axes = call.list("axis");
  if (!call.has("axis")) {
    for (std::int64_t axis = 0; axis < call.rank(x); ++axis)
      if ((*x.dims)[static_cast<std::size_t>(axis)] == 1) axes.push_back(axis);
  }
  for (std::int64_t& axis : axes) axis = call.axis_of(axis, x);
  return {axes.empty() ? x : call.squeeze(x, axes)};
}

Operands transpose(Call& call) {
  const Operand& x = call.input(0);
  Dims order = call.list("axes");
  if (order.empty()) {
    order.resize(static_cast<std::size_t>(call.rank(x)));
    std::iota(order.rbegin(), order.rend(), 0);
  }
  for (std::int64_t& axis : order) axis = call.axis_of(axis, x);
  return {call.transpose(x, order)};
}

Operands swap_axes(Call& call) {
  const Operand& x = call.input(0);
  Dims order(static_cast<std::size_t>(call.rank(x)));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<std::size_t>(call.axis_of(call.integer("dim1", 0), x))],
            order[static_cast<std::size_t>(call.axis_of(call.integer("dim2", 0), x))]);
  return {call.transpose(x, order)};
}

Operands concat(Call& call) {
  return {call.concat(call.inputs(), call.axis_of(call.integer("dim", 1), call.input(0)))};
}

Operands stack(Call& call) {
  std::int64_t axis = call.integer("axis", 0);
  if (axis < 0) axis += call.rank(call.input(0)) + 1;
  Operands parts;
  for (const Operand& input : call.inputs()) parts.push_back(call.unsqueeze(input, {axis}));
  return {call.concat(parts, axis)};
}

Operands parts_along(Call& call, std::int64_t count, std::int64_t axis) {
  const Operand& x = call.input(0);
  constexpr std::int64_t kMostParts = 1 << 16;
  if (count < 1 || count > kMostParts)
    call.refuse("the number of parts cannot be; expected 1 to 65536");
  std::optional<Dims> dims = x.dims;
  if (dims && dims->at(static_cast<std::size_t>(axis)) > 0)
    dims->at(static_cast<std::size_t>(axis)) /= count;
  const std::vector<Form> forms(static_cast<std::size_t>(count), Form{x.element, dims});
  Operands parts =
      count == 1 ? Operands{x} : call.writer.add("Split", {x}, {{"axis", axis}}, forms);
  if (call.flag("squeeze_axis"))
    for (Operand& part : parts) part = call.squeeze(part, {axis});
  return parts;
}

Operands slice_channel(Call& call) {
  const std::int64_t axis = call.axis_of(call.integer("axis", 1), call.input(0));
  return parts_along(call, call.integer("num_outputs", 1), axis);
}

Operands split_at(Call& call) {
  const Operand& x = call.input(0);
  const std::int64_t axis = call.axis_of(call.integer("axis", 0), x);
  Dims begins = call.list("indices");
  if (call.integer("sections", 0) > 0) return parts_along(call, call.integer("sections", 0), axis);
  if (begins.empty() || begins.front() != 0) begins.insert(begins.begin(), 0);
  Operands parts;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::int64_t end = i + 1 < begins.size() ? begins[i + 1] : kLast;
    parts.push_back(call.slice(x, axis, begins[i], end));
    if (call.flag("squeeze_axis")) parts.back() = call.squeeze(parts.back(), {axis});
  }
  return parts;
}

Operands slice(Call& call) {
  const Operand& x = call.input(0);
  const auto begin = call.holes("begin"), end = call.holes("end"), step = call.holes("step");
  Dims begins, ends, axes, steps;
  std::optional<Dims> dims = x.dims;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    const std::int64_t by = i < step.size() ? step[i].value_or(1) : 1;
    if (by == 0) call.refuse("a step of 0; expected another number");
    begins.push_back(begin[i].value_or(by > 0 ? 0 : kLast));
    ends.push_back(
        (i < end.size() ? end[i] : std::nullopt).value_or(by > 0 ? kLast : kBeforeFirst));
    axes.push_back(static_cast<std::int64_t>(i));
    steps.push_back(by);
    if (!dims || i >= dims->size()) continue;
    std::int64_t& size = (*dims)[i];
    if (by != 1) size = kUnknownSize;
    if (size < 0) continue;
    const auto place = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
    };
    size = std::max<std::int64_t>(0, place(ends.back()) - place(begins.back()));
  }
  return {call.add("Slice",
                   {x, call.writer.integers(begins), call.writer.integers(ends),
                    call.writer.integers(axes), call.writer.integers(steps)},
                   {}, {x.element, dims})};
}

Operands slice_axis(Call& call) {
  const Operand& x = call.input(0);
  const std::int64_t axis = call.axis_of(call.integer("axis", 0), x);
  return {call.slice(x, axis, call.integer("begin", 0), call.integer("end", kLast))};
}

Operands slice_like(Call& call) {
  const Operand& x = call.input(0);
  const Operand& like = call.input(1);
  Dims axes = call.list("axes");
  if (axes.empty()) {
    axes.resize(static_cast<std::size_t>(call.rank(x)));
    std::iota(axes.begin(), axes.end(), 0);
  }
  std::optional<Dims> dims = x.dims;
  Operands ends;
  for (std::int64_t& axis : axes) {
    axis = call.axis_of(axis, x);
    ends.push_back(call.size(like, axis));
    if (dims) {
      dims->at(static_cast<std::size_t>(axis)) =
          like.dims ? like.dims->at(static_cast<std::size_t>(axis)) : kUnknownSize;
    }
  }
  const Dims zeros(axes.size(), 0);
  return {call.add(
      "Slice", {x, call.writer.integers(zeros), call.concat(ends, 0), call.writer.integers(axes)},
      {}, {x.element, dims})};
}

Operands broadcast_to(Call& call) {
  Dims shape = call.list("shape");
  std::optional<Dims> dims = call.input(0).dims;
  for (std::int64_t& size : shape) size = size == 0 ? 1 : size;
  dims = broadcast_dims(dims, shape);
  return {call.expand(call.input(0), call.writer.integers(shape), dims)};
}

Operands broadcast_axis(Call& call) {
  const Operand& x = call.input(0);
  const Dims axes = call.list("axis"), counts = call.list("size");
  Dims shape(static_cast<std::size_t>(call.rank(x)), 1);
  if (axes.size() != counts.size()) call.refuse("axis and size differ; expected a size an axis");
  for (std::size_t i = 0; i < axes.size(); ++i)
    shape.at(static_cast<std::size_t>(call.axis_of(axes[i], x))) = counts[i];
  return {call.expand(x, call.writer.integers(shape), broadcast_dims(x.dims, shape))};
}

Operands broadcast_like(Call& call) {
  if (call.has("lhs_axes") || call.has("rhs_axes")) call.refuse("some axes; expected all");
  const Operand& like = call.input(1);
  return {call.expand(call.input(0), call.sizes(like), like.dims)};
}

Operands tile(Call& call) {
  Operand x = call.input(0);
  Dims counts = call.list("reps");
  while (std::ssize(counts) < call.rank(x)) counts.insert(counts.begin(), 1);
  while (std::ssize(counts) > call.rank(x)) x = call.unsqueeze(x, {0});
  Dims dims = call.dims(x);
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i] >= 0) dims[i] *= counts[i];
  return {call.add("Tile", {x, call.writer.integers(counts)}, {}, {x.element, dims})};
}

// Each element several times: along an axis of its own, which then joins the one before.
Operands repeat(Call& call) {
  Operand x = call.input(0);
  const Dims given = call.list("repeats", {1});
  if (given.size() != 1) call.refuse("repeats of each element; expected one number");
  const std::int64_t count = given.front();
  if (!call.has("axis")) x = call.reshape(x, {-1}, Dims{x.dims ? product(*x.dims) : kUnknownSize});
  const std::int64_t axis = call.axis_of(call.integer("axis", 0), x);
  const Operand apart = call.unsqueeze(x, {axis + 1});
  Dims counts(static_cast<std::size_t>(call.rank(apart)), 1);
  counts.at(static_cast<std::size_t>(axis + 1)) = count;
  const Operand copies =
      call.expand(apart, call.writer.integers(counts), broadcast_dims(apart.dims, counts));
  std::vector<TargetSize> target;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (i == static_cast<std::size_t>(axis + 1)) continue;
    target.push_back({TargetSize::Kind::kOfInput, 1, {i}});
    if (i == static_cast<std::size_t>(axis)) target.back().axes.push_back(i + 1);
  }
  return {reshaped(call, copies, target)};
}

Operands reverse(Call& call) {
  const Operand& x = call.input(0);
  Dims axes = call.list("axis");
  if (!call.has("axis")) {
    axes.resize(static_cast<std::size_t>(call.rank(x)));
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (std::int64_t& axis : axes) axis = call.axis_of(axis, x);
  const Operand begins = call.writer.integers(Dims(axes.size(), -1)),
                ends = call.writer.integers(Dims(axes.size(), kBeforeFirst)),
                steps = call.writer.integers(Dims(axes.size(), -1));
  return {call.add("Slice", {x, begins, ends, call.writer.integers(axes), steps}, {}, form_of(x))};
}

Operands pad(Call& call) {
  const Operand& x = call.input(0);
  const std::string mode = call.text("mode", "constant");
  const Dims widths = call.list("pad_width");
  if (mode != "constant" && mode != "edge" && mode != "reflect")
    call.refuse("mode is " + mode + "; expected constant, edge or reflect");
  Dims pads;
  for (const std::size_t side : {0U, 1U})
    for (std::size_t i = side; i < widths.size(); i += 2) pads.push_back(widths[i]);
  std::optional<Dims> dims = x.dims;
  for (std::size_t i = 0; dims && i < dims->size() && 2 * i + 1 < widths.size(); ++i)
    if ((*dims)[i] >= 0) (*dims)[i] += widths[2 * i] + widths[2 * i + 1];
  Operands inputs{x, call.writer.integers(pads)};
  if (mode == "constant")
    inputs.push_back(call.writer.number(
        call.number("constant_values", call.number("constant_value", 0)), x.element));
  return {call.add("Pad", inputs, {{"mode", mode}}, {x.element, dims})};
}

Operands shape_array(Call& call) {
  return {call.sizes(call.input(0))};
}

Operands size_array(Call& call) {
  const Operand& x = call.input(0);
  const Operand count = call.add("Size", {x}, {}, {Element::kInt64, Dims{}});
  return {call.reshape(count, {1}, Dims{1})};
}

constexpr TranslationRow kShapeRows[] = {
    {"Reshape reshape", reshape},
    {"Flatten flatten", flatten},
    {"reshape_like", reshape_like},
    {"expand_dims", expand_dims},
    {"squeeze", squeeze},
    {"transpose", transpose},
    {"SwapAxis swapaxes", swap_axes},
    {"Concat concat _rnn_param_concat", concat},
    {"stack", stack},
    {"SliceChannel split", slice_channel},
    {"_split_v2", split_at},
    {"slice crop", slice},
    {"slice_axis", slice_axis},
    {"slice_like", slice_like},
    {"broadcast_to", broadcast_to},
    {"broadcast_axis broadcast_axes", broadcast_axis},
    {"broadcast_like", broadcast_like},
    {"tile", tile},
    {"repeat _npi_repeats", repeat},
    {"reverse flip", reverse},
    {"Pad pad _npi_pad", pad, Reads::kAll, true},
    {"shape_array", shape_array},
    {"size_array", size_array},
};

}  // namespace

std::span<const TranslationRow> shape_rows() {
  return kShapeRows;
}

}  // namespace mezzo::convert::mxnet
