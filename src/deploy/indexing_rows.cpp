// Reading and writing by index.
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

Names embedding(C c) {
  return {c.one("Gather", {c.x("weight"), c.x("indices")})};
}

Names index_select(C c) {
  std::string index = c.x("index");
  if (c.rank("index") == 0) index = c.unsqueezed(index, {0});
  return {c.one("Gather", {c.x(), index}, {{"axis", c.dim()}})};
}

Names gather(C c) {
  if (c.rank() == 0) return {c.x()};
  return {c.one("GatherElements", {c.x(), c.x("index")}, {{"axis", c.dim()}})};
}

/// Tensors of places, one for each of the leading axes that has one; masks become places.
struct Places {
  std::vector<std::int64_t> axes;
  Names tensors;
  std::int64_t rank = 0;  // of all of them together
  bool are_alike = true;  // of one shape, which needs no broadcast
};

Places places_of(C c) {
  Places places;
  std::int64_t axis = 0;
  OnnxValue first;
  for (const OnnxValue& one : c.arg("indices").elements()) {
    if (one.is_none()) {
      ++axis;
      continue;
    }
    if (first.is_none()) first = one;
    places.are_alike = places.are_alike && c.columns_of(one) == c.columns_of(first);
    const at::Tensor example = example_of(one, 0).toTensor();
    const std::string name = c.g.name_of(one);
    if (example.scalar_type() == at::kBool || example.scalar_type() == at::kByte) {
      const std::string found =
          c.one("NonZero", {c.g.cast(name, example.scalar_type(), at::kBool)});
      for (std::int64_t d = 0; d < example.dim(); ++d) {
        places.axes.push_back(axis++);
        places.tensors.push_back(
            c.one("Gather", {found, c.g.integer(d)}, {{"axis", std::int64_t{0}}}));
      }
      places.are_alike = places.are_alike && c.arg("indices").elements().size() == 1;
      places.rank = std::max<std::int64_t>(places.rank, 1);
    } else {
      places.axes.push_back(axis++);
      places.tensors.push_back(c.g.cast(name, example.scalar_type(), at::kLong));
      places.rank = std::max(places.rank, example.dim());
    }
  }
  return places;
}

/// The axes with places first, the others behind them.
std::vector<std::int64_t> places_first(const std::vector<std::int64_t>& axes, std::int64_t rank) {
  std::vector<std::int64_t> order = axes;
  for (std::int64_t d = 0; d < rank; ++d) {
    if (std::count(axes.begin(), axes.end(), d) == 0) order.push_back(d);
  }
  return order;
}

/// [..., number of axes]: the places side by side, each broadcast to all.
std::string coordinates(C c, const Places& places) {
  const bool spreads = places.tensors.size() > 1 && !places.are_alike;
  std::string shape;
  if (spreads) {
    std::string sum = places.tensors[0];
    for (std::size_t i = 1; i < places.tensors.size(); ++i)
      sum = c.one("Add", {sum, places.tensors[i]});
    shape = c.one("Shape", {sum});
  }
  Names columns;
  for (const std::string& tensor : places.tensors) {
    const std::string all = spreads ? c.one("Expand", {tensor, shape}) : tensor;
    columns.push_back(c.unsqueezed(all, {-1}));
  }
  return columns.size() == 1 ? columns[0] : c.one("Concat", columns, {{"axis", std::int64_t{-1}}});
}

/// Places that stand side by side stay where the first of them stood; others come first.
std::int64_t front_of(const Places& places) {
  const bool together =
      places.axes.back() - places.axes.front() + 1 == static_cast<std::int64_t>(places.axes.size());
  return together ? places.axes.front() : 0;
}

/// From [places, other axes] to the order in which LibTorch has what stands at places.
std::vector<std::int64_t> order_of_found(const Places& places, std::int64_t rank) {
  const std::int64_t front = front_of(places);
  std::vector<std::int64_t> order;
  for (std::int64_t d = 0; d < front; ++d) order.push_back(places.rank + d);
  for (std::int64_t d = 0; d < places.rank; ++d) order.push_back(d);
  for (std::int64_t d = places.rank + front; d < rank; ++d) order.push_back(d);
  return order;
}

std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return back;
}

Names index(C c) {
  const Places places = places_of(c);
  if (places.axes.empty()) return {c.x()};
  if (places.axes.size() == 1)
    return {c.one("Gather", {c.x(), places.tensors[0]}, {{"axis", places.axes[0]}})};
  const std::int64_t rank = c.rank();
  const std::vector<std::int64_t> order = places_first(places.axes, rank);
  std::string x = c.x();
  if (!std::is_sorted(order.begin(), order.end())) x = c.one("Transpose", {x}, {{"perm", order}});
  const std::string found = c.one("GatherND", {x, coordinates(c, places)});
  if (front_of(places) == 0) return {found};
  return {c.one("Transpose", {found}, {{"perm", order_of_found(places, c.out_rank())}})};
}

/// Values as what is read at these places, which they are broadcast to.
std::string values_at(C c, const Places& places, const std::string& x, const std::string& where) {
  const std::string values = c.x("values", c.type()), found = c.one("GatherND", {x, where});
  bool is_one = true;
  for (std::size_t k = 0; k < c.g.variants(); ++k)
    is_one = is_one && c.example("values", k).numel() == 1;
  const std::int64_t rank = places.rank + c.rank() - static_cast<std::int64_t>(places.axes.size());
  const std::vector<std::int64_t> order = order_of_found(places, rank);
  if (is_one || std::is_sorted(order.begin(), order.end()))
    return c.one("Expand", {values, c.one("Shape", {found})});
  const std::string seen = c.one("Transpose", {found}, {{"perm", order}});
  return c.one("Transpose", {c.one("Expand", {values, c.one("Shape", {seen})})},
               {{"perm", inverse(order)}});
}

Names index_put(C c) {
  const bool adds = c.takes("accumulate") && c.b("accumulate");
  if (adds && c.g.opset() < 16) c.refuse("accumulate needs opset 16; set options.opset");
  const auto given = c.arg("indices").elements();
  const std::int64_t rank = c.rank();
  if (!adds && given.size() == 1 && !given[0].is_none() &&
      example_of(given[0], 0).toTensor().scalar_type() == at::kBool &&
      c.example("values").numel() == 1) {
    std::string mask = c.g.name_of(given[0]);
    const std::int64_t own = example_of(given[0], 0).toTensor().dim();
    for (std::int64_t d = own; d < rank; ++d) mask = c.unsqueezed(mask, {d});
    std::string value = c.x("values", c.type());
    if (c.rank("values") > 0) value = c.one("Reshape", {value, c.g.ints({})});
    return {c.one("Where", {mask, value, c.x()})};
  }
  const Places places = places_of(c);
  if (places.axes.empty()) {  // everywhere
    const std::string values = c.one("Expand", {c.x("values", c.type()), c.one("Shape", {c.x()})});
    return {adds ? c.one("Add", {c.x(), values}) : values};
  }
  const std::vector<std::int64_t> order = places_first(places.axes, rank);
  const bool moves = !std::is_sorted(order.begin(), order.end());
  std::string x = c.x();
  if (moves) x = c.one("Transpose", {x}, {{"perm", order}});
  const std::string where = coordinates(c, places);
  OnnxAttributes attributes;
  if (adds) attributes["reduction"] = std::string("add");
  std::string result = c.one("ScatterND", {x, where, values_at(c, places, x, where)}, attributes);
  if (moves) result = c.one("Transpose", {result}, {{"perm", inverse(order)}});
  return {result};
}

/// A reduction in ONNX, and what changes nothing in it.
struct Reduction {
  std::string name;
  at::Scalar neutral;
  int opset;  // the least
};

/// The number that no other one is beyond.
at::Scalar outermost(C c, bool is_lowest) {
  using Long = std::numeric_limits<std::int64_t>;
  using Int = std::numeric_limits<std::int32_t>;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (c.is_float()) return is_lowest ? -kInfinity : kInfinity;
  if (c.type() == at::kLong) return is_lowest ? Long::min() : Long::max();
  if (c.type() == at::kInt) return is_lowest ? Int::min() : Int::max();
  c.refuse("extremes of this type cannot be said in ONNX");
}

/// Means are sums first.
Reduction reduction_called(C c, const std::string& name) {
  constexpr int kAdds = 16, kOrders = 18;
  if (name == "add" || name == "sum" || name == "mean") return {"add", std::int64_t{0}, kAdds};
  if (name == "multiply" || name == "prod") return {"mul", std::int64_t{1}, kAdds};
  if (name == "amax") return {"max", outermost(c, true), kOrders};
  if (name == "amin") return {"min", outermost(c, false), kOrders};
  c.refuse("the reduction '" + name + "' cannot be said in ONNX");
}

/// Elements of a source are reduced into the tensor at places, which has their shape.
std::string reduced_at(C c, const std::string& name, const std::string& places,
                       const std::string& source, std::int64_t axis) {
  const Reduction reduction = reduction_called(c, name);
  if (c.g.opset() < reduction.opset)
    c.refuse("it needs opset " + std::to_string(reduction.opset) +
             " to add at repeated places; set options.opset");
  const bool includes_self = !c.takes("include_self") || c.b("include_self");
  const auto filled = [&](const at::Scalar& value, const std::string& like) {
    return c.one("Expand",
                 {c.g.tensor(at::scalar_tensor(value, c.type())), c.one("Shape", {like})});
  };
  const auto reduced = [&](const std::string& into, const std::string& from) {
    return c.one("ScatterElements", {into, places, from},
                 {{"axis", axis}, {"reduction", reduction.name}});
  };
  std::string x = c.x();
  if (!includes_self)
    x = c.one("ScatterElements", {x, places, filled(reduction.neutral, places)}, {{"axis", axis}});
  std::string made = reduced(x, source);
  if (name != "mean") return made;
  if (!c.is_float()) c.refuse("means of integers cannot be said in ONNX");
  const std::string counts = reduced(filled(std::int64_t{includes_self}, x), filled(1, places));
  return c.one("Div", {made, c.one("Max", {counts, c.constant(1)})});
}

Names scatter(C c, const std::string& reduction) {
  const std::string indices = c.x("index");
  std::string source;
  if (c.takes("src")) {
    source = c.x("src", c.type());
    bool same = true;
    for (std::int64_t d = 0; same && d < c.rank("src"); ++d)
      same = c.fixed_size("src", d) == c.fixed_size("index", d);
    if (!same) {
      std::vector<std::int64_t> axes(static_cast<std::size_t>(c.rank("src")));
      std::iota(axes.begin(), axes.end(), 0);
      source = c.one("Slice", {source, c.g.ints(std::vector<std::int64_t>(axes.size(), 0)),
                               c.one("Shape", {indices}), c.g.ints(axes)});
    }
  } else {
    source = c.one("Expand", {c.x("value", c.type()), c.one("Shape", {indices})});
  }
  const std::string name = c.has("reduce") ? c.s("reduce") : reduction;
  if (!name.empty()) return {reduced_at(c, name, indices, source, c.dim())};
  return {c.one("ScatterElements", {c.x(), indices, source}, {{"axis", c.dim()}})};
}

Names index_reduce(C c) {
  const std::string source = c.x("source", c.type());
  std::vector<std::int64_t> around;
  for (std::int64_t d = 0; d < c.rank(); ++d) {
    if (d != c.dim()) around.push_back(d);
  }
  const std::string places =
      c.one("Expand", {c.unsqueezed(c.x("index", at::kLong), around), c.one("Shape", {source})});
  return {reduced_at(c, c.s("reduce"), places, source, c.dim())};
}

/// Whole slices are added, written or filled at places of one axis.
Names index_write(C c, bool adds) {
  if (adds && c.g.opset() < 16) c.refuse("it needs opset 16; set options.opset");
  const std::int64_t axis = c.dim();
  std::string places = c.x("index");
  std::vector<std::int64_t> around;
  for (std::int64_t d = 0; d < c.rank(); ++d) {
    if (d != axis) around.push_back(d);
  }
  const std::string_view name = c.takes("source") ? "source" : "value";
  OnnxAttributes attributes;
  if (adds) attributes["reduction"] = std::string("add");
  std::string shape;
  std::string source;
  if (c.takes("source")) {
    source = c.x(name, c.type());
    if (c.has("alpha") && c.d("alpha") != 1)
      source = c.one("Mul", {source, c.constant(c.d("alpha"))});
    if (axis == 0 && c.rank("index") == 1 && c.rank() > 1)
      return {c.one("ScatterND", {c.x(), c.unsqueezed(places, {-1}), source}, attributes)};
    shape = c.one("Shape", {source});
  } else {
    shape = c.one("Shape", {c.one("Gather", {c.x(), places}, {{"axis", axis}})});
    source = c.one("Expand", {c.x(name, c.type()), shape});
  }
  const std::string all = c.one("Expand", {c.unsqueezed(places, around), shape});
  attributes["axis"] = axis;
  return {c.one("ScatterElements", {c.x(), all, source}, attributes)};
}

/// The places of a number have no coordinates; engines differ in what they return for them.
Names nonzero(C c) {
  const bool is_number = c.rank() == 0;
  std::string places = c.one("NonZero", {is_number ? c.unsqueezed(c.x(), {0}) : c.x()});
  if (is_number) places = c.sliced(places, 0, 0, 0);
  return {c.one("Transpose", {places}, {{"perm", std::vector<std::int64_t>{1, 0}}})};
}

Names masked_select(C c) {
  const std::string mask = c.x("mask"), x = c.x();
  const std::string all = c.one("Expand", {x, c.one("Shape", {mask})});
  const std::string where = c.one("Expand", {mask, c.one("Shape", {x})});
  return {c.one("Compress", {all, c.one("Reshape", {where, c.g.ints({-1})})})};
}

Names one_hot(C c) {
  const std::int64_t classes = c.i("num_classes");
  if (classes < 0) c.refuse("give the number of classes");
  return {c.one("OneHot", {c.x(), c.g.integer(classes), c.g.tensor(at::tensor({0, 1}, at::kLong))},
                {{"axis", std::int64_t{-1}}})};
}

/// The values that occur (or, along an axis, the slices), the place of each element among them, and
/// how often they occur. They are sorted, as LibTorch may do without being asked.
Names unique(C c, bool along_axis) {
  const bool is_wide = c.type() == at::kDouble || c.type() == at::kLong;
  const at::ScalarType type = is_wide ? c.type() : c.is_float() ? at::kFloat : at::kLong;
  OnnxAttributes attributes{{"sorted", std::int64_t{1}}};
  if (along_axis) attributes["axis"] = c.dim();
  const Names made = c.g.ops("Unique", {c.x("self", type)}, attributes, 4);
  const std::string places =
      along_axis ? made[2] : c.one("Reshape", {made[2], c.one("Shape", {c.x()})});
  return {c.g.cast(made[0], type, c.type()), places, made[3]};
}

constexpr Row kIndexing[] = {
    {"embedding", 13, embedding},
    {"index_select", 13, index_select},
    {"gather", 13, gather},
    {"index _unsafe_index", 13, index},
    {"take_along_dim", 13,
     [](C c) {
       return Names{c.one("GatherElements", {c.x(), c.x("indices")}, {{"axis", c.dim()}})};
     }},
    {"index_put _index_put_impl", 13, index_put},
    {"scatter", 13, [](C c) { return scatter(c, ""); }},
    {"scatter_add", 16, [](C c) { return scatter(c, "add"); }},
    {"scatter_reduce", 16, [](C c) { return scatter(c, ""); }},
    {"index_reduce", 16, index_reduce},
    {"index_add", 16, [](C c) { return index_write(c, true); }},
    {"index_copy index_fill", 13, [](C c) { return index_write(c, false); }},
    {"nonzero argwhere", 13, nonzero},
    {"masked_select", 13, masked_select},
    {"one_hot", 13, one_hot},
    {"_unique _unique2", 13, [](C c) { return unique(c, false); }},
    {"unique_dim", 13, [](C c) { return unique(c, true); }},
    {"take", 13,
     [](C c) {
       return Names{c.one("Gather", {c.one("Reshape", {c.x(), c.g.ints({-1})}), c.x("index")})};
     }},
};

}  // namespace

std::span<const Row> index_rows() {
  return kIndexing;
}

}  // namespace mezzo::deploy::detail
