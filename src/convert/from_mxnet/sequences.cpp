// Sequences that end at lengths of their own: time is the first dimension, the batch the second.
#include <algorithm>
#include <numeric>

#include "convert/from_mxnet/rows.h"

namespace mezzo::convert::mxnet {
namespace {

Operand lengths_of(Call& call) {
  return call.cast(call.input(1), Element::kInt64);
}

void check_axis(Call& call) {
  if (call.integer("axis", 0) != 0 && call.integer("axis", 0) != 1)
    call.refuse("axis is neither 0 nor 1; expected one of them");
}

// Which steps are within the lengths, as a value that broadcasts with the data.
Operand steps_within(Call& call, const Operand& x, std::int64_t time) {
  const Operand count = call.squeeze(call.size(x, time), {0});
  const Operand steps =
      call.add("Range", {call.writer.integer(0), count, call.writer.integer(1)}, {},
               {Element::kInt64, Dims{call.dims(x).at(static_cast<std::size_t>(time))}});
  Dims behind;
  for (std::int64_t axis = 2; axis < call.rank(x); ++axis) behind.push_back(axis);
  Operand places = call.unsqueeze(steps, {1 - time});
  Operand limits = call.unsqueeze(lengths_of(call), {time});
  if (!behind.empty()) {
    places = call.unsqueeze(places, behind);
    limits = call.unsqueeze(limits, behind);
  }
  return call.add("Less", {places, limits}, {},
                  {Element::kBool, broadcast_dims(places.dims, limits.dims)});
}

Operands sequence_mask(Call& call) {
  const Operand& x = call.input(0);
  if (!call.flag("use_sequence_length")) return {x};
  check_axis(call);
  Operand result = call.where(steps_within(call, x, call.integer("axis", 0)), x,
                              call.writer.number(call.number("value", 0), x.element));
  result.dims = x.dims;
  return {result};
}

Operands sequence_last(Call& call) {
  const Operand& x = call.input(0);
  check_axis(call);
  const std::int64_t time = call.integer("axis", 0);
  if (!call.flag("use_sequence_length")) {
    constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
    Operand last = call.slice(x, time, -1, kEnd);
    if (last.dims) last.dims->at(static_cast<std::size_t>(time)) = 1;
    return {call.squeeze(last, {time})};
  }
  Operand by_batch = x;  // the batch first, then each row's own step
  if (time == 0) {
    Dims order(static_cast<std::size_t>(call.rank(x)));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order.at(0), order.at(1));
    by_batch = call.transpose(x, order);
  }
  const Operand places =
      call.unsqueeze(call.broadcast("Sub", lengths_of(call), call.writer.integer(1)), {1});
  Dims dims = call.dims(by_batch);
  dims.erase(dims.begin() + 1);
  return {call.add("GatherND", {by_batch, places}, {{"batch_dims", std::int64_t{1}}},
                   {x.element, dims})};
}

Operands sequence_reverse(Call& call) {
  const Operand& x = call.input(0);
  if (call.flag("use_sequence_length")) {
    return {call.add("ReverseSequence", {x, lengths_of(call)},
                     {{"time_axis", std::int64_t{0}}, {"batch_axis", std::int64_t{1}}},
                     form_of(x))};
  }
  const Operand from = call.writer.integers({-1});
  const Operand before_first = call.writer.integers({std::numeric_limits<std::int64_t>::min()});
  return {
      call.add("Slice", {x, from, before_first, call.writer.integers({0}), from}, {}, form_of(x))};
}

constexpr TranslationRow kSequenceRows[] = {
    {"SequenceMask", sequence_mask, Reads::kAll, true},
    {"SequenceLast", sequence_last},
    {"SequenceReverse", sequence_reverse, Reads::kAll, true},
};

}  // namespace

std::span<const TranslationRow> sequence_rows() {
  return kSequenceRows;
}

}  // namespace mezzo::convert::mxnet
