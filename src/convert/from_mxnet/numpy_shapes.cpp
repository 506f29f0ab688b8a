// Shapes in numpy mode: other codes of reshape, and joins.
#include <algorithm>
#include <array>
#include <numeric>

#include "convert/from_mxnet/reshape.h"
#include "convert/from_mxnet/rows.h"

namespace mezzo::convert::mxnet {
namespace {

// Numpy's own: sizes, and -1 for the rest.
Operands reshape_as_numpy(Call& call) {
  const Dims codes = call.list("newshape");
  if (call.text("order", "C") != "C") call.refuse("another order than C; expected C");
  if (std::ranges::any_of(codes, [](std::int64_t code) { return code == 0 || code < -1; }))
    call.refuse("its shape is " + call.text("newshape", "()") +
                "; expected sizes above 0, and -1 once");
  return {reshape_by_codes(call, call.input(0), codes, false)};
}

// MXNet's: the codes of the older operator under other numbers, and one more.
Operands reshape_with_codes(Call& call) {
  constexpr std::array<std::int64_t, 7> kOlder{0, -1, 0, kSkipOne, -2, -3, -4};
  if (call.text("order", "C") != "C") call.refuse("another order than C; expected C");
  Dims codes = call.list("newshape");
  for (std::int64_t& code : codes) {
    if (code > 0) continue;
    if (code == 0 || -code >= std::ssize(kOlder))
      call.refuse("its shape is " + call.text("newshape", "()") +
                  "; expected sizes above 0 and codes from -1 to -6");
    code = kOlder[static_cast<std::size_t>(-code)];
  }
  return {reshape_by_codes(call, call.input(0), codes, call.flag("reverse"))};
}

Operand flat(Call& call, const Operand& x) {
  return call.reshape(x, {-1}, Dims{x.dims ? product(*x.dims) : kUnknownSize});
}

// All inputs, of which there is one at least.
Operands parts_of(Call& call) {
  call.input(0);
  return call.inputs();
}

Operands concatenate(Call& call) {
  Operands parts = parts_of(call);
  if (call.node().attr("axis").value_or("0") == "None") {
    for (Operand& part : parts) part = flat(call, part);
    return {call.concat(parts, 0)};
  }
  return {call.concat(parts, call.axis_of(call.integer("axis", 0), call.input(0)))};
}

// Rows on top of each other; a vector is a row.
Operands stack_rows(Call& call) {
  Operands parts = parts_of(call);
  for (Operand& part : parts) {
    while (call.rank(part) < 2) part = call.unsqueeze(part, {0});
  }
  return {call.concat(parts, 0)};
}

// Side by side; vectors have one side.
Operands stack_columns(Call& call) {
  Operands parts = parts_of(call);
  for (Operand& part : parts) {
    if (call.rank(part) == 0) part = call.unsqueeze(part, {0});
  }
  return {call.concat(parts, call.rank(parts.front()) > 1 ? 1 : 0)};
}

Operands move_axis(Call& call) {
  const Operand& x = call.input(0);
  Dims from = call.list("source"), to = call.list("destination");
  if (from.size() != to.size())
    call.refuse("source and destination differ; expected as many axes of each");
  constexpr std::int64_t kFree = -1;
  Dims order(static_cast<std::size_t>(call.rank(x)), kFree);
  std::vector<bool> moves(order.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = call.axis_of(from[i], x);
    std::int64_t& place = order[static_cast<std::size_t>(call.axis_of(to[i], x))];
    if (moves[static_cast<std::size_t>(from[i])] || place != kFree)
      call.refuse("an axis moves twice, or two to one place; expected different ones");
    place = from[i];
    moves[static_cast<std::size_t>(from[i])] = true;
  }
  std::size_t next = 0;  // the others keep their order
  for (std::int64_t& place : order) {
    if (place != kFree) continue;
    while (moves.at(next)) ++next;
    place = static_cast<std::int64_t>(next++);
  }
  return {call.transpose(x, order)};
}

constexpr TranslationRow kNumpyShapeRows[] = {
    {"_np_reshape", reshape_as_numpy}, {"_npx_reshape _npi_reshape", reshape_with_codes},
    {"_npi_concatenate", concatenate}, {"_npi_vstack", stack_rows},
    {"_npi_hstack", stack_columns},    {"_np_moveaxis _npi_moveaxis", move_axis},
};

}  // namespace

std::span<const TranslationRow> numpy_shape_rows() {
  return kNumpyShapeRows;
}

}  // namespace mezzo::convert::mxnet
