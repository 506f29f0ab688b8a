// Shapes: views, permutations, parts, repetitions.
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;
constexpr std::int64_t kToEnd = std::numeric_limits<std::int64_t>::max();

Names reshape(C c) {
  return {c.reshaped(c.x(), c.arg("self"))};
}

/// Sizes as the caller gave them, where each is a number or known; else from the example's sizes.
Names view(C c) {
  const std::string_view name = c.takes("size") ? "size" : c.takes("shape") ? "shape" : "";
  std::size_t open = 0;
  for (std::int64_t d = 0; d < c.out_rank(); ++d) open += c.fixed_out(d) < 0;
  if (open <= 1 || name.empty() || c.takes("dtype")) return reshape(c);
  if (std::string made = c.with_other_ones(c.x(), c.arg("self"), 0); !made.empty())
    return {std::move(made)};
  bool inferred = false;
  for (const OnnxValue& size : c.arg(name).elements())
    inferred = inferred || (size.is_constant() && size.to_int() == -1);
  // Sizes at their own places and one that is inferred need no arithmetic.
  std::size_t moved = 0;
  for (std::int64_t d = 0; d < c.out_rank(); ++d) {
    bool same = c.fixed_out(d) >= 0;
    if (!same && d < c.rank()) {
      same = true;
      for (std::size_t k = 0; k < c.g.variants(); ++k)
        same = same && c.example("self", k).size(d) == c.result(0, k).toTensor().size(d);
    }
    moved += !same;
  }
  if (moved <= 1) return reshape(c);
  constexpr std::size_t kMany = 3;  // fewer are made already, mostly, for the caller's list
  if (open >= kMany) {
    if (std::string made = c.with_moved_sizes(c.x(), c.arg("self"), 0); !made.empty())
      return {std::move(made)};
  }
  return {c.one("Reshape", {c.x(), c.list(name)})};
}

Names permute(C c) {
  std::vector<std::int64_t> order = c.is("dims");
  for (std::int64_t& each : order) each = each < 0 ? each + c.rank() : each;
  if (std::is_sorted(order.begin(), order.end())) return {c.x()};
  return {c.one("Transpose", {c.x()}, {{"perm", order}})};
}

Names transpose(C c) {
  if (c.rank() < 2) return {c.x()};
  if (!c.takes("dim0")) return {c.transposed(c.x(), c.rank(), c.rank() - 2, c.rank() - 1)};
  return {c.transposed(c.x(), c.rank(), c.dim("dim0"), c.dim("dim1"))};
}

Names move(C c) {
  std::vector<std::int64_t> from = c.is("source"), to = c.is("destination");
  std::vector<std::int64_t> order(static_cast<std::size_t>(c.rank()), -1);
  std::vector<std::int64_t> rest;
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = from[i] < 0 ? from[i] + c.rank() : from[i];
    order[static_cast<std::size_t>(to[i] < 0 ? to[i] + c.rank() : to[i])] = from[i];
  }
  for (std::int64_t d = 0; d < c.rank(); ++d) {
    if (std::count(from.begin(), from.end(), d) == 0) rest.push_back(d);
  }
  std::size_t next = 0;
  for (std::int64_t& each : order) {
    if (each < 0) each = rest[next++];
  }
  return {c.one("Transpose", {c.x()}, {{"perm", order}})};
}

Names squeeze(C c) {
  std::vector<std::int64_t> axes;
  for (std::int64_t d = 0; d < c.rank(); ++d) {
    bool asked = !c.has("dim");
    if (!asked) {
      for (const std::int64_t each : c.is("dim"))
        asked = asked || (each < 0 ? each + c.rank() : each) == d;
    }
    if (asked && c.fixed_size("self", d) == 1) axes.push_back(d);
  }
  return {c.squeezed(c.x(), axes)};
}

Names unsqueeze(C c) {
  const std::int64_t given = c.i("dim");
  return {c.unsqueezed(c.x(), {given < 0 ? given + c.rank() + 1 : given})};
}

/// The tensor with the result's sizes; sizes of the result that follow from inputs are given.
Names expand(C c) {
  std::vector<std::int64_t> fixed;
  bool all = true;
  for (std::int64_t d = 0; d < c.out_rank(); ++d) {
    const std::int64_t own = d - (c.out_rank() - c.rank());
    std::int64_t size = c.fixed_out(d);
    if (size < 0 && own >= 0 && c.fixed_size("self", own) != 1) size = 1;  // stays as it is
    all = all && size >= 0;
    fixed.push_back(size);
  }
  if (all) {
    bool changes = c.out_rank() != c.rank();
    for (std::int64_t d = 0; !changes && d < c.rank(); ++d)
      changes = c.fixed_out(d) != c.fixed_size("self", d);
    return {changes ? c.one("Expand", {c.x(), c.g.ints(fixed)}) : c.x()};
  }
  if (c.takes("other")) return {c.one("Expand", {c.x(), c.one("Shape", {c.x("other")})})};
  Names parts;
  const std::vector<OnnxValue> sizes = c.arg("size").elements();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    parts.push_back(fixed[d] >= 0 ? c.g.ints({fixed[d]}) : c.g.list_of(sizes[d]));
  }
  return {c.one(
      "Expand",
      {c.x(), parts.size() == 1 ? parts[0] : c.one("Concat", parts, {{"axis", std::int64_t{0}}})})};
}

Names repeat(C c) {
  std::string x = c.x();
  const std::string_view name = c.takes("repeats") ? "repeats" : "dims";
  auto count = static_cast<std::int64_t>(c.arg(name).elements().size());
  std::string repeats = c.list(name);
  if (count > c.rank())
    x = c.one("Reshape", {x, c.one("Concat",
                                   {c.g.ints(std::vector<std::int64_t>(
                                        static_cast<std::size_t>(count - c.rank()), 1)),
                                    c.one("Shape", {x})},
                                   {{"axis", std::int64_t{0}}})});
  if (count < c.rank())
    repeats =
        c.one("Concat",
              {c.g.ints(std::vector<std::int64_t>(static_cast<std::size_t>(c.rank() - count), 1)),
               repeats},
              {{"axis", std::int64_t{0}}});
  return {c.one("Tile", {x, repeats})};
}

Names joined(C c, bool stacks) {
  Names parts;
  std::int64_t rank = 0;
  for (const OnnxValue& tensor : c.arg("tensors").elements()) {
    const at::Tensor example = example_of(tensor, 0).toTensor();
    if (!stacks && example.dim() == 1 && example.numel() == 0 && c.out_rank() > 1) continue;
    rank = example.dim();
    parts.push_back(c.as(tensor, c.out_type()));
  }
  std::int64_t axis = c.i("dim");
  if (axis < 0) axis += rank + (stacks ? 1 : 0);
  if (stacks) {
    for (std::string& part : parts) part = c.unsqueezed(part, {axis});
  }
  return {parts.size() == 1 ? parts[0] : c.one("Concat", parts, {{"axis", axis}})};
}

/// Parts along an axis whose lengths are known, the last one perhaps to the end.
Names parts_of(C c, const std::vector<std::int64_t>& lengths, std::int64_t axis, bool is_fixed) {
  if (lengths.size() == 1) return {c.x()};
  if (is_fixed) {
    return c.g.ops("Split", {c.x(), c.g.ints(lengths)}, {{"axis", axis}}, lengths.size());
  }
  Names parts;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t end = i + 1 == lengths.size() ? kToEnd : begin + lengths[i];
    parts.push_back(c.sliced(c.x(), axis, begin, end));
    begin += lengths[i];
  }
  return parts;
}

Names split(C c) {
  const std::int64_t axis = c.dim();
  std::vector<std::int64_t> lengths;
  bool is_fixed = true;
  const auto all = c.result().toTensorVector();
  for (std::size_t i = 0; i < all.size(); ++i) {
    lengths.push_back(all[i].size(axis));
    for (std::size_t k = 1; k < c.g.variants(); ++k) {
      const auto other = c.result(0, k).toTensorVector();
      if (other.size() != all.size())
        c.refuse("the number of its parts follows from the model's inputs");
      is_fixed = is_fixed && other[i].size(axis) == lengths.back();
    }
  }
  if (!is_fixed && c.takes("chunks") && lengths.size() > 1) {
    const std::string size = c.sizes(c.x(), axis, axis + 1);
    const std::string chunk = c.one(
        "Div", {c.one("Add", {size, c.g.ints({c.i("chunks") - 1})}), c.g.ints({c.i("chunks")})});
    Names parts;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto at = [&](std::size_t n) {
        return c.one("Mul", {chunk, c.g.ints({static_cast<std::int64_t>(n)})});
      };
      parts.push_back(
          c.one("Slice", {c.x(), at(i), i + 1 == lengths.size() ? c.g.ints({kToEnd}) : at(i + 1),
                          c.g.ints({axis})}));
    }
    return parts;
  }
  if (!is_fixed && (c.takes("split_sizes") ||
                    (c.takes("split_size") && c.arg("split_size").elements().size() > 1))) {
    const std::string_view name = c.takes("split_sizes") ? "split_sizes" : "split_size";
    return c.g.ops("Split", {c.x(), c.list(name)}, {{"axis", axis}}, lengths.size());
  }
  return parts_of(c, lengths, axis, is_fixed);
}

Names unbind(C c) {
  const std::int64_t axis = c.dim();
  if (c.fixed_size("self", axis) < 0)
    c.refuse("the number of its parts follows from the model's inputs");
  Names parts;
  for (std::size_t i = 0; i < c.result().toTensorVector().size(); ++i)
    parts.push_back(
        c.one("Gather", {c.x(), c.g.integer(static_cast<std::int64_t>(i))}, {{"axis", axis}}));
  return parts;
}

Names slice(C c) {
  const auto bound = [&](std::string_view name, std::int64_t otherwise) {
    return c.has(name) ? c.list(name) : c.g.ints({otherwise});
  };
  const std::int64_t axis = c.has("dim") ? c.dim() : 0;
  const bool whole = (!c.has("start") || (c.is_fixed("start") && c.i("start") == 0)) &&
                     c.i("step", 1) == 1 &&
                     (!c.has("end") || (c.is_fixed("end") && c.i("end") == kToEnd));
  if (whole) return {c.x()};
  Names in = {c.x(), bound("start", 0), bound("end", kToEnd), c.g.ints({axis})};
  if (c.i("step", 1) != 1) in.push_back(c.list("step"));
  return {c.one("Slice", in)};
}

Names narrow(C c) {
  const std::string start = c.list("start");
  return {
      c.one("Slice", {c.x(), start, c.one("Add", {start, c.list("length")}), c.g.ints({c.dim()})})};
}

Names select(C c) {
  const std::int64_t axis = c.dim();
  const OnnxValue& index = c.arg("index");
  const std::string place =
      index.is_constant() ? c.g.integer(index.to_int()) : c.one("Squeeze", {c.list("index")});
  return {c.one("Gather", {c.x(), place}, {{"axis", axis}})};
}

Names flip(C c) {
  std::string x = c.x();
  for (std::int64_t axis : c.is("dims")) {
    axis = axis < 0 ? axis + c.rank() : axis;
    x = c.one("Slice", {x, c.g.ints({-1}), c.g.ints({std::numeric_limits<std::int64_t>::min()}),
                        c.g.ints({axis}), c.g.ints({-1})});
  }
  return {x};
}

/// By a number that follows from inputs.
std::string rolled(C c, const std::string& x, std::int64_t axis, const OnnxValue& by) {
  const std::string shift = c.one("Mod", {c.g.list_of(by), c.sizes(x, axis, axis + 1)});
  const std::string begin = c.one("Neg", {shift}), along = c.g.ints({axis});
  return c.one("Concat",
               {c.one("Slice", {x, begin, c.g.ints({kToEnd}), along}),
                c.one("Slice", {x, c.g.ints({0}), begin, along})},
               {{"axis", axis}});
}

Names roll(C c) {
  std::string x = c.x();
  const std::vector<OnnxValue> shifts = c.arg("shifts").elements();
  const std::vector<std::int64_t> dims = c.is("dims");
  const bool flat = dims.empty();
  if (flat) x = c.one("Reshape", {x, c.g.ints({-1})});
  for (std::size_t i = 0; i < shifts.size(); ++i) {
    const std::int64_t axis = flat ? 0 : dims[i] < 0 ? dims[i] + c.rank() : dims[i];
    if (!shifts[i].is_constant()) {
      x = rolled(c, x, axis, shifts[i]);
      continue;
    }
    std::int64_t shift = shifts[i].to_int();
    if (const std::int64_t size = flat ? c.example().numel() : c.fixed_size("self", axis); size > 0)
      shift = ((shift % size) + size) % size;
    if (shift == 0) continue;
    x = c.one("Concat", {c.sliced(x, axis, -shift, kToEnd), c.sliced(x, axis, 0, -shift)},
              {{"axis", axis}});
  }
  return {flat ? c.one("Reshape", {x, c.one("Shape", {c.x()})}) : x};
}

Names size(C c) {
  const std::int64_t axis = c.dim();
  return {c.sizes(c.x(), axis, axis + 1)};
}

Names triangle(C c, std::int64_t upper) {
  const std::string_view diagonal = "diagonal";
  if (c.g.opset() < 14) c.refuse("it needs opset 14; set options.opset");
  const bool truth = c.type() == at::kBool;
  const std::string x = truth ? c.g.cast(c.x(), at::kBool, at::kLong) : c.x();
  const std::string part = c.one("Trilu", {x, c.g.integer(c.i(diagonal))}, {{"upper", upper}});
  return {truth ? c.g.cast(part, at::kLong, at::kBool) : part};
}

Names copy(C c) {
  const std::string source = c.x("src", c.type());
  bool same = c.rank("src") == c.rank();
  for (std::int64_t d = 0; same && d < c.rank(); ++d)
    same = c.fixed_size("self", d) >= 0 && c.fixed_size("self", d) == c.fixed_size("src", d);
  return {same ? source : c.one("Expand", {source, c.one("Shape", {c.x()})})};
}

Names diagonal(C c) {
  if (c.rank() != 2 || c.i("offset", 0) != 0)
    c.refuse("only the main diagonal of matrices can be taken");
  const std::string rows = c.one("Squeeze", {c.sizes(c.x(), 0, 1)}),
                    columns = c.one("Squeeze", {c.sizes(c.x(), 1, 2)});
  const std::string places =
      c.one("Range", {c.g.integer(0), c.one("Min", {rows, columns}), c.g.integer(1)});
  const std::string column = c.unsqueezed(places, {1});
  return {
      c.one("GatherND", {c.x(), c.one("Concat", {column, column}, {{"axis", std::int64_t{1}}})})};
}

/// The place of each element of a result that has every element as often as a number of its own
/// says: the count of those that end before it.
std::string repeated_places(C c) {
  const std::string repeats = c.x("repeats", at::kLong);
  const std::string ends = c.one("CumSum", {repeats, c.g.integer(0)});
  const std::string total = c.reduced("ReduceSum", repeats, {0}, false, 1);
  const std::string all = c.one("Range", {c.g.integer(0), total, c.g.integer(1)});
  const std::string over = c.one("LessOrEqual", {c.unsqueezed(ends, {0}), c.unsqueezed(all, {1})});
  return c.reduced("ReduceSum", c.g.cast(over, at::kBool, at::kLong), {1}, false, 2);
}

bool is_number_each(C c) {
  const c10::IValue example = example_of(c.arg("repeats"), 0);
  return example.isTensor() && example.toTensor().numel() != 1;
}

/// Every element several times.
Names repeat_interleave(C c) {
  if (!c.takes("self")) return {repeated_places(c)};
  std::string x = c.x();
  std::int64_t axis = 0, rank = 1;
  if (c.has("dim")) {
    axis = c.dim();
    rank = c.rank();
  } else {
    x = c.one("Reshape", {x, c.g.ints({-1})});
  }
  if (is_number_each(c)) return {c.one("Gather", {x, repeated_places(c)}, {{"axis", axis}})};
  const auto concat = [&](const Names& parts) {
    return parts.size() == 1 ? parts[0] : c.one("Concat", parts, {{"axis", std::int64_t{0}}});
  };
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(rank), 1);
  const auto in_front = ones.begin() + axis + 1;
  std::string repeats;
  if (c.is_fixed("repeats")) {
    std::vector<std::int64_t> all(ones.begin(), in_front);
    all.push_back(c.i("repeats"));
    all.insert(all.end(), in_front, ones.end());
    repeats = c.g.ints(all);
  } else {
    Names parts = {c.g.ints({ones.begin(), in_front}), c.list("repeats")};
    if (in_front != ones.end()) parts.push_back(c.g.ints({in_front, ones.end()}));
    repeats = concat(parts);
  }
  const std::string tiled = c.one("Tile", {c.unsqueezed(x, {axis + 1}), repeats});
  std::vector<std::int64_t> sizes;
  for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(c.fixed_out(d));
  if (std::count(sizes.begin(), sizes.end(), -1) == 0) return {c.resized(tiled, sizes)};
  // Axes in front of it stay, it is inferred, and those behind it are as they were.
  for (std::int64_t d = 0; d <= axis; ++d) sizes[static_cast<std::size_t>(d)] = d == axis ? -1 : 0;
  Names parts;
  std::vector<std::int64_t> numbers;
  for (std::int64_t d = 0; d < rank; ++d) {
    const std::int64_t size = sizes[static_cast<std::size_t>(d)];
    if (d <= axis || size >= 0) {
      numbers.push_back(size);
      continue;
    }
    if (!numbers.empty()) parts.push_back(c.g.ints(numbers));
    numbers.clear();
    parts.push_back(c.sizes(x, d, d + 1));
  }
  if (!numbers.empty()) parts.push_back(c.g.ints(numbers));
  return {c.one("Reshape", {tiled, concat(parts)})};
}

/// Channels in turns, one of each group.
Names shuffled_channels(C c) {
  const std::int64_t groups = c.i("groups"), channels = c.fixed_size("self", 1);
  if (channels < 0) c.refuse("the number of channels follows from the model's inputs");
  const std::string parts = c.one("Reshape", {c.x(), c.g.ints({0, groups, channels / groups, -1})});
  const std::string turned =
      c.one("Transpose", {parts}, {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
  return {c.one("Reshape", {turned, c.one("Shape", {c.x()})})};
}

/// Elements by their places in memory, which is laid out as ONNX's tensors are.
Names as_strided(C c) {
  for (std::size_t k = 0; k < c.g.variants(); ++k) {
    if (!c.example("self", k).is_contiguous()) c.refuse("the tensor is not contiguous");
  }
  const std::vector<std::int64_t> sizes = c.is("size"), strides = c.is("stride");
  at::Tensor places = at::full({}, c.i("storage_offset", 0), at::TensorOptions(at::kLong));
  for (std::size_t d = 0; d < sizes.size(); ++d)
    places = places.unsqueeze(-1) + at::arange(sizes[d], at::TensorOptions(at::kLong)) * strides[d];
  return {c.one("Gather", {c.one("Reshape", {c.x(), c.g.ints({-1})}), c.g.tensor(places)})};
}

constexpr Row kShapes[] = {
    {"view reshape _unsafe_view _reshape_alias", 13, view},
    {"flatten unflatten view_as reshape_as ravel", 13, reshape},
    {"permute", 13, permute},
    {"transpose t mT", 13, transpose},
    {"swapaxes", 13,
     [](C c) { return Names{c.transposed(c.x(), c.rank(), c.dim("axis0"), c.dim("axis1"))}; }},
    {"numpy_T", 13,
     [](C c) {
       std::vector<std::int64_t> order(static_cast<std::size_t>(c.rank()));
       std::iota(order.rbegin(), order.rend(), 0);
       return Names{c.one("Transpose", {c.x()}, {{"perm", order}})};
     }},
    {"movedim moveaxis", 13, move},
    {"squeeze", 13, squeeze},
    {"unsqueeze", 13, unsqueeze},
    {"expand expand_as broadcast_to", 13, expand},
    {"repeat tile", 13, repeat},
    {"repeat_interleave", 13, repeat_interleave},
    {"cat concat concatenate", 13, [](C c) { return joined(c, false); }},
    {"stack", 13, [](C c) { return joined(c, true); }},
    {"split split_with_sizes unsafe_split_with_sizes chunk tensor_split unsafe_chunk", 13, split},
    {"unsafe_split", 13, split},
    {"unbind", 13, unbind},
    {"slice", 13, slice},
    {"narrow narrow_copy", 13, narrow},
    {"channel_shuffle native_channel_shuffle", 13, shuffled_channels},
    {"as_strided", 13, as_strided},
    {"select", 13, select},
    {"flip", 13, flip},
    {"fliplr", 13,
     [](C c) {
       return Names{c.one(
           "Slice", {c.x(), c.g.ints({-1}), c.g.ints({std::numeric_limits<std::int64_t>::min()}),
                     c.g.ints({1}), c.g.ints({-1})})};
     }},
    {"roll", 13, roll},
    {"size sym_size", 13, size},
    {"tril", 14, [](C c) { return triangle(c, 0); }},
    {"triu", 14, [](C c) { return triangle(c, 1); }},
    {"copy", 13, copy},
    {"diagonal diag", 15, diagonal},
    {"numel", 13,
     [](C c) {
       return Names{c.one("Reshape", {c.one("Size", {c.x()}), c.g.ints({1})})};
     }},
    {"len", 13,
     [](C c) {
       return Names{c.sizes(c.g.name_of(c.arg(c.schema().arguments()[0].name())), 0, 1)};
     }},
    {"_shape_as_tensor", 13, [](C c) { return Names{c.one("Shape", {c.x()})}; }},
};

}  // namespace

std::span<const Row> shape_rows() {
  return kShapes;
}

}  // namespace mezzo::deploy::detail
