#include "convert/from_mxnet/call.h"

#include <algorithm>

#include "core/raise.h"

namespace mezzo::convert::mxnet {

const NDArrays* Source::holder(const std::string& name) const {
  if (arg_params.contains(name)) return &arg_params;
  return aux_params.contains(name) ? &aux_params : nullptr;
}

std::int64_t product(std::span<const std::int64_t> dims) {
  std::int64_t result = 1;
  for (const std::int64_t dim : dims) {
    if (dim < 0) return kUnknownSize;
    if (__builtin_mul_overflow(result, dim, &result)) return kUnknownSize;
  }
  return result;
}

std::optional<Dims> broadcast_dims(const std::optional<Dims>& a, const std::optional<Dims>& b) {
  if (!a || !b) return std::nullopt;
  const Dims& longer = a->size() >= b->size() ? *a : *b;
  const Dims& shorter = a->size() >= b->size() ? *b : *a;
  Dims result = longer;
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    std::int64_t& dim = result[result.size() - 1 - i];
    const std::int64_t other = shorter[shorter.size() - 1 - i];
    if (dim == 1 || (dim < 0 && other > 1)) dim = other;
  }
  return result;
}

void Call::refuse(const std::string& what) const {
  raise<UnsupportedError>("mxnet", "operator ", node_.op, " (node '", node_.name, "'): ", what);
}

const Operand& Call::input(std::size_t i) const {
  if (i >= inputs_.size() || !inputs_[i].is_there()) {
    refuse("has " + std::to_string(inputs_.size()) + " inputs; expected one more at least");
  }
  return inputs_[i];
}

const Dims& Call::dims(const Operand& operand) const {
  if (!operand.dims) {
    refuse(
        "how many dimensions its input has is not known; give the shapes of the data "
        "(--input NAME=SHAPE, 0 for sizes that change)");
  }
  return *operand.dims;
}

const Dims& Call::dims(const Operand& operand, std::int64_t least) const {
  if (rank(operand) < least)
    refuse("its input has " + std::to_string(rank(operand)) + " dimensions; expected " +
           std::to_string(least) + " at least");
  return *operand.dims;
}

const NDArrays* Call::parameter(std::size_t i, std::string* name) const {
  if (i >= node_.inputs.size()) return nullptr;
  const Node& from = source_.symbol.nodes()[node_.inputs[i].node];
  if (!from.is_variable()) return nullptr;
  *name = from.name;
  return source_.holder(from.name);
}

std::int64_t Call::axis_of(std::int64_t axis, const Operand& operand) const {
  if (axis >= 0 && !operand.dims) return axis;
  const std::int64_t count = rank(operand);
  if (axis < -count || axis >= count) {
    refuse("axis " + std::to_string(axis) + " of a value of " + std::to_string(count) +
           " dimensions; expected one that it has");
  }
  return axis < 0 ? axis + count : axis;
}

Operand Call::broadcast(const std::string& op, const Operand& a, const Operand& b) {
  return add(op, {a, b}, {}, {a.element, broadcast_dims(a.dims, b.dims)});
}

Operand Call::modulo(const Operand& a, const Operand& b) {
  const Operand whole = map("Floor", broadcast("Div", a, b));
  const Operand rest = broadcast("Sub", a, broadcast("Mul", whole, b));
  const Operand zero = writer.number(0, a.element);
  return where(add("Equal", {b, zero}, {}, {Element::kBool, b.dims}), zero, rest);
}

Operand Call::cast(const Operand& x, Element element) {
  if (x.element == element) return x;
  return add("Cast", {x}, {{"to", static_cast<std::int64_t>(element)}}, {element, x.dims});
}

Operand Call::transpose(const Operand& x, const Dims& order) {
  std::optional<Dims> dims;
  if (x.has_rank(order.size())) {
    dims.emplace();
    for (const std::int64_t axis : order)
      dims->push_back(x.dims->at(static_cast<std::size_t>(axis)));
  }
  return add("Transpose", {x}, {{"perm", order}}, {x.element, dims});
}

Operand Call::reshape(const Operand& x, const Dims& target, std::optional<Dims> dims) {
  return add("Reshape", {x, writer.integers(target)}, {}, {x.element, std::move(dims)});
}

Operand Call::unsqueeze(const Operand& x, const Dims& axes) {
  std::optional<Dims> dims = x.dims;
  Dims sorted = axes;
  std::ranges::sort(sorted);
  for (const std::int64_t axis : sorted) {
    if (dims && axis >= 0 && axis <= std::ssize(*dims))
      dims->insert(dims->begin() + axis, 1);
    else if (dims && axis == -1)
      dims->push_back(1);
    else
      dims.reset();
  }
  return add("Unsqueeze", {x, writer.integers(axes)}, {}, {x.element, dims});
}

Operand Call::squeeze(const Operand& x, const Dims& axes) {
  std::optional<Dims> dims = x.dims;
  Dims sorted = axes;
  std::ranges::sort(sorted, std::greater());
  for (const std::int64_t axis : sorted) {
    if (dims && axis >= 0 && axis < std::ssize(*dims))
      dims->erase(dims->begin() + axis);
    else
      dims.reset();
  }
  return add("Squeeze", {x, writer.integers(axes)}, {}, {x.element, dims});
}

Operand Call::slice(const Operand& x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  std::optional<Dims> dims = x.dims;
  if (dims && axis >= 0 && axis < std::ssize(*dims)) {
    std::int64_t& size = dims->at(static_cast<std::size_t>(axis));
    const auto place = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
    };
    if (size >= 0)
      size = std::max<std::int64_t>(0, place(end) - place(begin));
    else if (begin >= 0 && end >= begin && end - begin == 1)
      size = 1;
  }
  return add("Slice",
             {x, writer.integers({begin}), writer.integers({end}), writer.integers({axis})}, {},
             {x.element, dims});
}

Operand Call::concat(const Operands& parts, std::int64_t axis) {
  if (parts.size() == 1) return parts.front();
  std::optional<Dims> dims = parts.front().dims;
  std::int64_t total = 0;
  for (const Operand& part : parts) {
    if (!dims || !part.has_rank(dims->size()) || axis < 0 || axis >= std::ssize(*dims)) {
      dims.reset();
      break;
    }
    for (std::size_t i = 0; i < dims->size(); ++i)
      if ((*dims)[i] < 0) (*dims)[i] = (*part.dims)[i];
    const std::int64_t size = part.dims->at(static_cast<std::size_t>(axis));
    total = size < 0 || total < 0 ? kUnknownSize : total + size;
  }
  if (dims) dims->at(static_cast<std::size_t>(axis)) = total;
  return add("Concat", parts, {{"axis", axis}}, {parts.front().element, dims});
}

Operand Call::sizes(const Operand& x) {
  const std::int64_t count = x.dims ? std::ssize(*x.dims) : kUnknownSize;
  if (x.dims && product(*x.dims) >= 0) return writer.integers(*x.dims);
  return add("Shape", {x}, {}, {Element::kInt64, Dims{count}});
}

Operand Call::size(const Operand& x, std::int64_t axis) {
  if (x.dims && axis < std::ssize(*x.dims) && x.dims->at(static_cast<std::size_t>(axis)) >= 0)
    return writer.integers({x.dims->at(static_cast<std::size_t>(axis))});
  return add("Gather", {sizes(x), writer.integers({axis})}, {{"axis", std::int64_t{0}}},
             {Element::kInt64, Dims{1}});
}

Operand Call::expand(const Operand& x, const Operand& sizes, std::optional<Dims> dims) {
  return add("Expand", {x, sizes}, {}, {x.element, std::move(dims)});
}

Operand Call::where(const Operand& condition, const Operand& yes, const Operand& no) {
  const auto dims = broadcast_dims(condition.dims, broadcast_dims(yes.dims, no.dims));
  return add("Where", {condition, yes, no}, {}, {yes.element, dims});
}

}  // namespace mezzo::convert::mxnet
