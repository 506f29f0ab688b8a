// Values that are looked up, chosen, or made from nothing.
#include <algorithm>
#include <cmath>

#include "convert/from_mxnet/rows.h"

namespace mezzo::convert::mxnet {
namespace {

// Indices are floats in MXNet.
Operand indices_of(Call& call, const Operand& x) {
  return call.cast(x, Element::kInt64);
}

Operand gathered(Call& call, const Operand& table, const Operand& indices, std::int64_t axis) {
  std::optional<Dims> dims;
  if (table.dims && indices.dims) {
    dims = Dims(table.dims->begin(), table.dims->begin() + axis);
    dims->insert(dims->end(), indices.dims->begin(), indices.dims->end());
    dims->insert(dims->end(), table.dims->begin() + axis + 1, table.dims->end());
  }
  return call.add("Gather", {table, indices}, {{"axis", axis}}, {table.element, dims});
}

// Indices beyond the ends are moved to them.
Operand clipped(Call& call, const Operand& indices, const Operand& table, std::int64_t axis) {
  const Operand last =
      call.broadcast("Sub", call.squeeze(call.size(table, axis), {0}), call.writer.integer(1));
  const Operand low = call.broadcast("Max", indices, call.writer.integer(0));
  return call.broadcast("Min", low, last);
}

Operands embedding(Call& call) {
  return {gathered(call, call.input(1), indices_of(call, call.input(0)), 0)};
}

Operands take(Call& call) {
  const Operand& table = call.input(0);
  const std::int64_t axis = call.axis_of(call.integer("axis", 0), table);
  Operand indices = indices_of(call, call.input(1));
  const std::string mode = call.text("mode", "clip");
  if (mode == "wrap") {
    const Operand count = call.squeeze(call.size(table, axis), {0});
    indices = call.add("Mod", {indices, count}, {}, form_of(indices));
  } else if (mode == "clip") {
    indices = clipped(call, indices, table, axis);
  }
  return {gathered(call, table, indices, axis)};
}

Operands pick(Call& call) {
  const Operand& x = call.input(0);
  const std::int64_t axis = call.axis_of(call.integer("axis", -1), x);
  if (call.text("mode", "clip") != "clip") call.refuse("mode is not clip; expected clip");
  Operand indices = indices_of(call, call.input(1));
  if (call.rank(indices) != call.rank(x)) indices = call.unsqueeze(indices, {axis});
  Dims dims = call.dims(x);
  dims.at(static_cast<std::size_t>(axis)) = 1;
  const Operand found = call.add("GatherElements", {x, clipped(call, indices, x, axis)},
                                 {{"axis", axis}}, {x.element, dims});
  return {call.flag("keepdims") ? found : call.squeeze(found, {axis})};
}

Operands gather_nd(Call& call) {
  const Operand& x = call.input(0);
  const Operand indices = indices_of(call, call.input(1));
  call.dims(indices, 1);
  Dims order;
  for (std::int64_t axis = 1; axis < call.rank(indices); ++axis) order.push_back(axis);
  order.push_back(0);
  std::optional<Dims> dims;
  if (x.dims && indices.dims->front() >= 0 && indices.dims->front() <= std::ssize(*x.dims)) {
    dims = Dims(indices.dims->begin() + 1, indices.dims->end());
    dims->insert(dims->end(), x.dims->begin() + indices.dims->front(), x.dims->end());
  }
  return {call.add("GatherND", {x, call.transpose(indices, order)}, {}, {x.element, dims})};
}

Operands one_hot(Call& call) {
  const std::int64_t depth = call.integer("depth", 0);
  constexpr std::int64_t kMostClasses = 1 << 24;
  if (depth < 1 || depth > kMostClasses) call.refuse("depth cannot be; expected 1 to 16777216");
  std::vector<std::int64_t> classes(static_cast<std::size_t>(depth));
  for (std::int64_t i = 0; i < depth; ++i) classes[static_cast<std::size_t>(i)] = i;
  const Operand indices = call.unsqueeze(indices_of(call, call.input(0)), {-1});
  const Operand all = call.writer.integers(classes);
  const Operand is_it = call.add("Equal", {indices, all}, {},
                                 {Element::kBool, broadcast_dims(indices.dims, all.dims)});
  const Element element = call.dtype(Element::kFloat);
  return {call.where(is_it, call.writer.number(call.number("on_value", 1), element),
                     call.writer.number(call.number("off_value", 0), element))};
}

Operands where(Call& call) {
  Operand condition = call.cast(call.input(0), Element::kBool);
  const Operand& yes = call.input(1);
  if (condition.has_rank(1) && yes.dims && yes.dims->size() > 1) {  // one for each row
    Dims shape(yes.dims->size(), 1);
    shape[0] = -1;
    condition = call.reshape(condition, shape, shape);
    condition.dims->front() = yes.dims->front();
  }
  Operand result = call.where(condition, yes, call.input(2));
  if (yes.dims) result.dims = yes.dims;
  return {result};
}

Operands filled_like(Call& call, double value) {
  const Operand& x = call.input(0);
  return {call.expand(call.writer.number(value, x.element), call.sizes(x), x.dims)};
}

Operands zeros_like(Call& call) {
  return filled_like(call, 0);
}
Operands ones_like(Call& call) {
  return filled_like(call, 1);
}

// Sizes of 0 are not known to the graph: their partner decides. One is broadcast to it.
Operands filled(Call& call, double value) {
  Dims dims = call.list("shape");
  for (std::int64_t& size : dims) size = std::max<std::int64_t>(size, 1);
  const Operand number = call.writer.number(value, call.dtype(Element::kFloat));
  return {call.expand(number, call.writer.integers(dims), dims)};
}

Operands zeros(Call& call) {
  return filled(call, 0);
}
Operands ones(Call& call) {
  return filled(call, 1);
}
Operands full(Call& call) {
  return filled(call, call.number("value", 0));
}

Operands arange(Call& call) {
  double start = call.number("start", 0), stop = call.number("stop", 0);
  if (!call.has("stop")) {
    if (call.flag("infer_range")) call.refuse("infer_range; expected stop");
    stop = start;
    start = 0;
  }
  const double step = call.number("step", 1);
  const std::int64_t repeats = call.integer("repeat", 1);
  constexpr double kMost = 1 << 24;
  const double count = step == 0 ? 0 : std::ceil((stop - start) / step);
  if (!(count >= 1) || repeats < 1 || count * static_cast<double>(repeats) > kMost)
    call.refuse("no numbers, or too many; expected 1 to 16777216");
  std::vector<float> values;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i)
    values.insert(values.end(), static_cast<std::size_t>(repeats),
                  static_cast<float>(start + step * static_cast<double>(i)));
  const Operand made = call.writer.floats({std::ssize(values)}, values);
  return {call.cast(made, call.dtype(Element::kFloat))};
}

Operands arange_like(Call& call) {
  const Operand& x = call.input(0);
  if (call.integer("repeat", 1) != 1) call.refuse("repeat; expected 1");
  const bool is_whole = !call.has("axis");
  const std::int64_t axis = is_whole ? 0 : call.axis_of(call.integer("axis", 0), x);
  const Operand count = is_whole ? call.add("Size", {x}, {}, {Element::kInt64, Dims{}})
                                 : call.squeeze(call.size(x, axis), {0});
  const std::int64_t known = !x.dims    ? kUnknownSize
                             : is_whole ? product(*x.dims)
                                        : x.dims->at(static_cast<std::size_t>(axis));
  Operand numbers = call.add("Range", {call.writer.integer(0), count, call.writer.integer(1)}, {},
                             {Element::kInt64, Dims{known}});
  numbers = call.cast(numbers, Element::kFloat);
  if (call.number("step", 1) != 1) numbers = call.broadcast("Mul", numbers, call.number("step", 1));
  if (call.number("start", 0) != 0)
    numbers = call.broadcast("Add", numbers, call.number("start", 0));
  if (is_whole && !x.has_rank(1))
    numbers = call.add("Reshape", {numbers, call.sizes(x)}, {}, {Element::kFloat, x.dims});
  return {numbers};
}

constexpr TranslationRow kIndexingRows[] = {
    {"Embedding _contrib_SparseEmbedding", embedding},
    {"take", take},
    {"pick", pick},
    {"gather_nd", gather_nd},
    {"one_hot", one_hot},
    {"where", where},
    {"zeros_like", zeros_like},
    {"ones_like", ones_like},
    {"_zeros _zeros_without_dtype", zeros},
    {"_ones", ones},
    {"_full", full},
    {"_arange", arange},
    {"_contrib_arange_like", arange_like},
};

}  // namespace

std::span<const TranslationRow> indexing_rows() {
  return kIndexingRows;
}

}  // namespace mezzo::convert::mxnet
