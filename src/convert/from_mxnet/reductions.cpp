// Sums, extremes, norms, and what is sorted.
#include <algorithm>
#include <numeric>

#include "convert/from_mxnet/rows.h"

namespace mezzo::convert::mxnet {
namespace {

struct Reduction {
  Dims axes;
  bool keeps = false;
  std::optional<Dims> dims;  // of the result
  bool is_whole = false;     // down to one number, which MXNet gives a dimension
};

Reduction reduction_of(Call& call, const Operand& x) {
  Reduction reduction{call.list("axis"), call.flag("keepdims"), {}, false};
  std::vector<bool> is_named;
  const bool is_all = reduction.axes.empty() && !call.flag("exclude");
  if (is_all && !x.dims && !reduction.keeps) {
    reduction.is_whole = true;
    reduction.dims = Dims{};
    return reduction;
  }
  is_named.assign(static_cast<std::size_t>(call.rank(x)), is_all);
  for (const std::int64_t axis : reduction.axes)
    is_named[static_cast<std::size_t>(call.axis_of(axis, x))] = true;
  if (call.flag("exclude")) is_named.flip();
  reduction.axes.clear();
  reduction.dims.emplace();
  for (std::size_t i = 0; i < is_named.size(); ++i) {
    if (is_named[i]) reduction.axes.push_back(static_cast<std::int64_t>(i));
    if (!is_named[i])
      reduction.dims->push_back((*x.dims)[i]);
    else if (reduction.keeps)
      reduction.dims->push_back(1);
  }
  reduction.is_whole = reduction.dims->empty();
  return reduction;
}

Operand reduced(Call& call, const std::string& op, const Operand& x) {
  const Reduction reduction = reduction_of(call, x);
  if (reduction.axes.empty() && !reduction.is_whole) return x;
  Attributes attributes{{"keepdims", std::int64_t{reduction.keeps ? 1 : 0}}};
  Operands inputs{x};
  if (op == "ReduceSum" && !reduction.axes.empty())
    inputs.push_back(call.writer.integers(reduction.axes));
  else if (!reduction.axes.empty())
    attributes.push_back({"axes", reduction.axes});
  Operand result = call.add(op, inputs, attributes, {x.element, reduction.dims});
  if (reduction.is_whole) result = call.reshape(result, {1}, Dims{1});
  return result;
}

template <const char* Op>
Operands reduce(Call& call) {
  return {reduced(call, Op, call.input(0))};
}

constexpr char kReduceSum[] = "ReduceSum", kReduceMean[] = "ReduceMean", kReduceMax[] = "ReduceMax",
               kReduceMin[] = "ReduceMin", kReduceProd[] = "ReduceProd";

Operands norm(Call& call) {
  const std::int64_t order = call.integer("ord", 2);
  if (order != 1 && order != 2) call.refuse("ord is neither 1 nor 2; expected one of them");
  const Operand& x = call.input(0);
  if (order == 1) return {reduced(call, "ReduceSum", call.map("Abs", x))};
  const Operand sum = reduced(call, "ReduceSum", call.broadcast("Mul", x, x));
  return {call.map("Sqrt", sum)};
}

// Indices are numbers of the data's type, as everywhere in MXNet.
Operand extreme_index(Call& call, const char* op, std::int64_t axis, bool keeps, const Operand& x) {
  axis = call.axis_of(axis, x);
  std::optional<Dims> dims = x.dims;
  if (dims && keeps) dims->at(static_cast<std::size_t>(axis)) = 1;
  if (dims && !keeps) dims->erase(dims->begin() + axis);
  const Operand index =
      call.add(op, {x}, {{"axis", axis}, {"keepdims", std::int64_t{keeps ? 1 : 0}}},
               {Element::kInt64, dims});
  return call.cast(index, Element::kFloat);
}

Operands arg_extreme(Call& call, const char* op) {
  Operand x = call.input(0);
  if (call.has("axis"))
    return {extreme_index(call, op, call.integer("axis", 0), call.flag("keepdims"), x)};
  x = call.reshape(x, {-1}, Dims{x.dims ? product(*x.dims) : kUnknownSize});
  return {extreme_index(call, op, 0, true, x)};
}

Operands argmax(Call& call) {
  return arg_extreme(call, "ArgMax");
}
Operands argmin(Call& call) {
  return arg_extreme(call, "ArgMin");
}
Operands argmax_channel(Call& call) {
  return {extreme_index(call, "ArgMax", 1, false, call.input(0))};
}

// The largest or smallest k along an axis, sorted: values and indices; k below 1 is all.
Operands best(Call& call, const Operand& given, std::int64_t k, bool ascends) {
  Operand x = given;
  if (call.node().attr("axis").value_or("") == "None")
    x = call.reshape(x, {-1}, Dims{x.dims ? product(*x.dims) : kUnknownSize});
  const std::int64_t axis = call.axis_of(call.integer("axis", -1), x);
  std::optional<Dims> dims = x.dims;
  if (dims && k > 0) dims->at(static_cast<std::size_t>(axis)) = k;
  const Operand count = k > 0 ? call.writer.integers({k}) : call.size(x, axis);
  return call.writer.add(
      "TopK", {x, count},
      {{"axis", axis}, {"largest", std::int64_t{ascends ? 0 : 1}}, {"sorted", std::int64_t{1}}},
      {Form{x.element, dims}, Form{Element::kInt64, dims}});
}

Operands topk(Call& call) {
  const std::string kind = call.text("ret_typ", "indices");
  Operands results = best(call, call.input(0), call.integer("k", 1), call.flag("is_ascend"));
  results[1] = call.cast(results[1], call.dtype(Element::kFloat));
  if (kind == "indices") return {results[1]};
  if (kind == "value") return {results[0]};
  if (kind == "both") return results;
  call.refuse("ret_typ is " + kind + "; expected indices, value or both");
}

Operands sort(Call& call) {
  return {best(call, call.input(0), 0, call.flag("is_ascend", true)).front()};
}

Operands argsort(Call& call) {
  const Operand order = best(call, call.input(0), 0, call.flag("is_ascend", true)).back();
  return {call.cast(order, call.dtype(Element::kFloat))};
}

constexpr TranslationRow kReductionRows[] = {
    {"sum sum_axis", reduce<kReduceSum>},
    {"mean", reduce<kReduceMean>},
    {"max max_axis", reduce<kReduceMax>},
    {"min min_axis", reduce<kReduceMin>},
    {"prod", reduce<kReduceProd>},
    {"norm", norm},
    {"argmax", argmax},
    {"argmin", argmin},
    {"argmax_channel", argmax_channel},
    {"topk", topk},
    {"sort", sort},
    {"argsort", argsort},
};

}  // namespace

std::span<const TranslationRow> reduction_rows() {
  return kReductionRows;
}

}  // namespace mezzo::convert::mxnet
