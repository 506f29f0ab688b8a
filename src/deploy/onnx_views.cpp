// Views of tensors that are written in place: taken again, and put back into what they show.
#include <limits>
#include <numeric>

#include "deploy/onnx_walk.h"

namespace mezzo::deploy::detail {
namespace {

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

/// The base with [begin, end) along an axis replaced. Empty: the edge.
std::string put_slice(Builder& g, const std::string& base, const std::string& part,
                      std::int64_t axis, const std::string& begin, const std::string& end) {
  Names parts;
  const auto slice = [&](const std::string& from, const std::string& to) {
    return g.op("Slice", {base, from, to, g.ints({axis})});
  };
  if (!begin.empty()) parts.push_back(slice(g.ints({0}), begin));
  parts.push_back(part);
  if (!end.empty()) parts.push_back(slice(end, g.ints({kEnd})));
  return parts.size() == 1 ? part : g.op("Concat", parts, {{"axis", axis}});
}

void describe_slice(const Call& call, View* view) {
  Builder& g = call.g;
  const std::int64_t axis = call.has("dim") ? call.dim() : 0;
  const std::int64_t step = call.i("step", 1), size = call.fixed_size("self", axis);
  const auto bound = [&](std::string_view name, std::int64_t edge) {
    if (!call.has(name)) return std::string();
    if (!call.arg(name).is_constant()) return call.list(name);
    const std::int64_t place = call.i(name);
    const bool is_edge = place == edge || (edge == kEnd && size >= 0 && place >= size);
    return is_edge ? std::string() : g.ints({place});
  };
  const std::string begin = bound("start", 0), end = bound("end", kEnd);
  view->take = [&g, axis, begin, end, step](const std::string& base) {
    return g.op("Slice", {base, begin.empty() ? g.ints({0}) : begin,
                          end.empty() ? g.ints({kEnd}) : end, g.ints({axis}), g.ints({step})});
  };
  if (step != 1) return;
  view->put = [&g, axis, begin, end](const std::string& base, const std::string& written) {
    return put_slice(g, base, written, axis, begin, end);
  };
}

/// As above, at a place that follows from inputs, counted from the front.
void describe_dynamic_select(const Call& call, View* view) {
  Builder& g = call.g;
  for (std::size_t k = 0; k < g.variants(); ++k) {
    if (example_of(call.arg("index"), k).toScalar().to<std::int64_t>() < 0) return;
  }
  const std::int64_t axis = call.dim();
  const std::string index = call.list("index");
  view->take = [&g, axis, index](const std::string& base) {
    return g.op("Gather", {base, g.op("Squeeze", {index})}, {{"axis", axis}});
  };
  view->put = [&g, axis, index](const std::string& base, const std::string& written) {
    return put_slice(g, base, g.op("Unsqueeze", {written, g.ints({axis})}), axis, index,
                     g.op("Add", {index, g.ints({1})}));
  };
}

void describe_select(const Call& call, View* view) {
  Builder& g = call.g;
  if (!call.arg("index").is_constant()) return describe_dynamic_select(call, view);
  const std::int64_t axis = call.dim(), index = call.i("index");
  view->take = [&g, axis, index](const std::string& base) {
    return g.op("Gather", {base, g.integer(index)}, {{"axis", axis}});
  };
  view->put = [&g, axis, index](const std::string& base, const std::string& written) {
    const std::string part = g.op("Unsqueeze", {written, g.ints({axis})});
    return put_slice(g, base, part, axis, index == 0 ? "" : g.ints({index}),
                     index == -1 ? "" : g.ints({index + 1}));
  };
}

void describe_order(const Call& call, View* view, std::vector<std::int64_t> order) {
  Builder& g = call.g;
  std::vector<std::int64_t> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  view->take = [&g, order](const std::string& base) {
    return g.op("Transpose", {base}, {{"perm", order}});
  };
  view->put = [&g, back](const std::string&, const std::string& written) {
    return g.op("Transpose", {written}, {{"perm", back}});
  };
}

}  // namespace

void describe_view(const Call& call, View* view) {
  Builder& g = call.g;
  const std::string& name = call.schema().name();
  if (name == "aten::slice") return describe_slice(call, view);
  if (name == "aten::select") return describe_select(call, view);
  if (call.example().is_complex()) return;  // of other dimensions in the model
  const std::int64_t rank = call.rank();
  std::vector<std::int64_t> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (name == "aten::transpose" || (name == "aten::t" && rank == 2)) {
    const std::int64_t a = name == "aten::t" ? 0 : call.dim("dim0"),
                       b = name == "aten::t" ? 1 : call.dim("dim1");
    std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
    return describe_order(call, view, order);
  }
  if (name == "aten::permute") {
    order = call.is("dims");
    for (std::int64_t& each : order) each = each < 0 ? each + rank : each;
    return describe_order(call, view, order);
  }
  const bool reshapes = name == "aten::view" || name == "aten::reshape" ||
                        name == "aten::flatten" || name == "aten::unsqueeze" ||
                        name == "aten::squeeze" || name == "aten::view_as" ||
                        name == "aten::unflatten" || name == "aten::_unsafe_view";
  if (!reshapes) return;
  const c10::IValue first = call.result();
  std::vector<std::int64_t> sizes;
  for (std::int64_t d = 0; d < call.out_rank(); ++d) sizes.push_back(call.fixed_out(d));
  if (std::count(sizes.begin(), sizes.end(), -1) <= 1)
    view->take = [&g, sizes](const std::string& base) {
      return g.op("Reshape", {base, g.ints(sizes)});
    };
  view->put = [&g](const std::string& base, const std::string& written) {
    return g.op("Reshape", {written, g.op("Shape", {base})});
  };
}

void Walker::write(const OnnxValue& target, const std::string& name) {
  Operand& operand = *target.operand();
  operand.name = name;
  operand.is_constant = false;
  operand.path.clear();
  ++operand.version;
  if (!operand.view) return;
  if (!operand.view->put) {
    raise<UnsupportedError>("export_onnx", "a write in place through a view of this kind cannot ",
                            "be said in ONNX; write with index_put, slices or torch::where");
  }
  const OnnxValue base(operand.view->base);
  write(base, operand.view->put(g_.name_of(base), name));
  operand.view->base_version = operand.view->base->version;
}

}  // namespace mezzo::deploy::detail
