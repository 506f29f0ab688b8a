// Padding in LibTorch's four ways, with widths that may follow from inputs; negative ones cut off.
#include <ATen/PadNd.h>

#include <algorithm>
#include <limits>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;
constexpr std::int64_t kAxisEnd = std::numeric_limits<std::int64_t>::max();

OnnxValue integers(const std::vector<OnnxValue>& values) {
  auto list = std::make_shared<Operand>();
  list->kind = Operand::Kind::kList;
  list->type = c10::ListType::ofInts();
  list->elements = values;
  return OnnxValue(list);
}

/// The smallest of a number over all runs.
std::int64_t least(C c, const OnnxValue& width) {
  std::int64_t smallest = kAxisEnd;
  for (std::size_t k = 0; k < c.g.variants(); ++k)
    smallest = std::min(smallest, example_of(width, k).toScalar().to<std::int64_t>());
  return smallest;
}

/// Widths of an axis, and what they are of.
struct Edges {
  std::int64_t axis;
  OnnxValue begin, end;
};

/// LibTorch counts from the last axis.
std::vector<Edges> edges_of(C c) {
  const std::vector<OnnxValue> given = c.arg(c.takes("pad") ? "pad" : "padding").elements();
  std::vector<Edges> edges;
  for (std::size_t i = 0; i + 1 < given.size(); i += 2)
    edges.push_back({c.rank() - 1 - static_cast<std::int64_t>(i / 2), given[i], given[i + 1]});
  return edges;
}

/// ONNX lists all beginnings, then all ends.
Names padded(C c, const std::string& mode) {
  const auto rank = static_cast<std::size_t>(c.rank());
  std::vector<OnnxValue> widths(2 * rank, constant_of(std::int64_t{0}, c.g.variants()));
  for (const Edges& edges : edges_of(c)) {
    widths[static_cast<std::size_t>(edges.axis)] = edges.begin;
    widths[static_cast<std::size_t>(edges.axis) + rank] = edges.end;
  }
  Names in = {c.x(), c.g.list_of(integers(widths))};
  if (mode == "constant") in.push_back(c.has("value") ? c.x("value", c.out_type()) : c.constant(0));
  return {c.one("Pad", in, {{"mode", mode}})};
}

/// One axis: what negative widths cut off goes first, then both ends are taken from what is left.
std::string wrapped(C c, const std::string& x, const Edges& edges) {
  const std::string along = c.g.ints({edges.axis}), zero = c.g.ints({0});
  const auto positive = [&](const OnnxValue& width) {
    if (width.is_constant()) return c.g.ints({std::max<std::int64_t>(width.to_int(), 0)});
    return c.one("Max", {c.g.list_of(width), zero});
  };
  const auto size_less = [&](const std::string& tensor, const std::string& part) {
    return c.one("Sub", {c.sizes(tensor, edges.axis, edges.axis + 1), part});
  };
  const auto cut = [&](const OnnxValue& width) {
    if (width.is_constant()) return c.g.ints({std::max<std::int64_t>(-width.to_int(), 0)});
    return c.one("Max", {c.one("Neg", {c.g.list_of(width)}), zero});
  };
  const auto may_cut = [&](const OnnxValue& width) {
    return !width.is_constant() || least(c, width) < 0;
  };
  std::string whole = x;
  if (may_cut(edges.begin) || may_cut(edges.end))
    whole = c.one("Slice", {x, cut(edges.begin), size_less(x, cut(edges.end)), along});
  const auto is_none = [](const OnnxValue& width) {
    return width.is_constant() && width.to_int() <= 0;
  };
  Names parts;
  if (!is_none(edges.begin))
    parts.push_back(c.one(
        "Slice", {whole, size_less(whole, positive(edges.begin)), c.g.ints({kAxisEnd}), along}));
  parts.push_back(whole);
  if (!is_none(edges.end))
    parts.push_back(c.one("Slice", {whole, zero, positive(edges.end), along}));
  return parts.size() == 1 ? whole : c.one("Concat", parts, {{"axis", edges.axis}});
}

Names pad_around(C c) {
  constexpr int kWraps = 19;  // Pad of this opset does
  const std::vector<Edges> all = edges_of(c);
  const bool grows = std::ranges::all_of(all, [&](const Edges& edges) {
    return least(c, edges.begin) >= 0 && least(c, edges.end) >= 0;
  });
  if (grows && c.g.opset() >= kWraps) return padded(c, "wrap");
  std::string x = c.x();
  for (const Edges& edges : all) x = wrapped(c, x, edges);
  return {x};
}

Names pad_by(C c, at::padding_mode mode) {
  switch (mode) {
    case at::padding_mode::reflect:
      return padded(c, "reflect");
    case at::padding_mode::replicate:
      return padded(c, "edge");
    case at::padding_mode::circular:
      return pad_around(c);
    case at::padding_mode::constant:
      return padded(c, "constant");
  }
  c.refuse("it pads in a way that this version does not know");
}

Names pad_by_name(C c) {
  const std::string mode = c.takes("mode") ? c.s("mode") : "constant";
  return pad_by(c, mode == "reflect"     ? at::padding_mode::reflect
                   : mode == "replicate" ? at::padding_mode::replicate
                   : mode == "circular"  ? at::padding_mode::circular
                                         : at::padding_mode::constant);
}

/// The front end for C++ records these.
Names pad_by_number(C c) {
  return pad_by(c, static_cast<at::padding_mode>(c.i("mode")));
}

constexpr Row kPadding[] = {
    {"pad", 13, pad_by_name},
    {"_pad_enum", 13, pad_by_number},
    {"constant_pad_nd", 13, [](C c) { return padded(c, "constant"); }},
    {"reflection_pad1d reflection_pad2d", 13, [](C c) { return padded(c, "reflect"); }},
    {"reflection_pad3d", 13, [](C c) { return padded(c, "reflect"); }},
    {"replication_pad1d replication_pad2d", 13, [](C c) { return padded(c, "edge"); }},
    {"replication_pad3d", 13, [](C c) { return padded(c, "edge"); }},
    {"_pad_circular", 13, pad_around},
};

}  // namespace

std::span<const Row> padding_rows() {
  return kPadding;
}

}  // namespace mezzo::deploy::detail
