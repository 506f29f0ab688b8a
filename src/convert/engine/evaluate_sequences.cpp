// Sequences and optionals.
#include <algorithm>

#include "convert/engine/evaluate.h"
#include "convert/onnx/fields.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

/// An array as rows: `outer` times the axis times `inner` bytes.
struct Layout {
  std::size_t outer = 1, size = 1, inner = 1;
};

Layout layout_of(const Array& array, std::int64_t axis) {
  Layout layout;
  layout.inner = stored_size_of(array.element);
  for (std::size_t i = 0; i < array.dims.size(); ++i) {
    const auto size = static_cast<std::size_t>(array.dims[i]);
    const auto at = static_cast<std::int64_t>(i);
    (at < axis ? layout.outer : at == axis ? layout.size : layout.inner) *= size;
  }
  return layout;
}

std::size_t place_in(std::int64_t place, std::size_t size, bool is_end_allowed) {
  const auto whole = static_cast<std::int64_t>(size);
  const std::int64_t at = place < 0 ? place + whole : place;
  if (at < 0 || at > whole || (at == whole && !is_end_allowed))
    raise("evaluate", "place ", place, " of a sequence of ", size);
  return static_cast<std::size_t>(at);
}

}  // namespace

Array slice_at(const Array& array, std::int64_t axis, std::int64_t place) {
  const Layout layout = layout_of(array, axis);
  Array part{array.element, array.dims, {}};
  part.dims.erase(part.dims.begin() + axis);
  for (std::size_t o = 0; o < layout.outer; ++o) {
    part.bytes.append(array.bytes,
                      (o * layout.size + static_cast<std::size_t>(place)) * layout.inner,
                      layout.inner);
  }
  return part;
}

Array stacked(const std::vector<Array>& arrays, std::int64_t axis) {
  Array all;
  if (arrays.empty()) return all;
  all.element = arrays[0].element;
  all.dims = arrays[0].dims;
  all.dims.insert(all.dims.begin() + axis, static_cast<std::int64_t>(arrays.size()));
  const Layout layout = layout_of(all, axis);
  for (std::size_t o = 0; o < layout.outer; ++o) {
    for (const Array& array : arrays) {
      if (array.dims != arrays[0].dims)
        raise("evaluate", "values of different shapes cannot be stacked");
      all.bytes.append(array.bytes, o * layout.inner, layout.inner);
    }
  }
  return all;
}

bool Evaluation::container(const Node& node) {
  const std::string_view op = node.op;
  const auto items = [&]() -> const std::vector<DatumPtr>& { return input(node, 0)->items; };
  if (op == "Identity" || op == "OptionalGetElement") {
    set(node.outputs.at(0), input(node, 0));
  } else if (op == "Optional") {
    set(node.outputs.at(0), !node.inputs.empty() && node.inputs[0] != kNone
                                ? input(node, 0)
                                : std::make_shared<Datum>(Datum{Datum::Kind::kNothing, {}, {}}));
  } else if (op == "OptionalHasElement") {
    set(node.outputs.at(0), datum_of({Element::kBool, {}, std::string(1, has(node, 0) ? 1 : 0)}));
  } else if (op == "SequenceEmpty") {
    set(node.outputs.at(0), sequence_of({}));
  } else if (op == "SequenceConstruct") {
    std::vector<DatumPtr> all;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) all.push_back(input(node, i));
    set(node.outputs.at(0), sequence_of(std::move(all)));
  } else if (op == "SequenceLength") {
    const auto count = static_cast<std::int64_t>(items().size());
    set(node.outputs.at(0),
        datum_of({Element::kInt64, {}, std::string(reinterpret_cast<const char*>(&count), 8)}));
  } else if (op == "SequenceAt") {
    set(node.outputs.at(0), items()[place_in(whole(node, 1), items().size(), false)]);
  } else if (op == "SequenceErase") {
    std::vector<DatumPtr> all = items();
    const std::size_t at = place_in(has(node, 1) ? whole(node, 1) : -1, all.size(), false);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
    set(node.outputs.at(0), sequence_of(std::move(all)));
  } else if (op == "SequenceInsert") {
    sequence_insert(node);
  } else if (op == "SplitToSequence") {
    split_to_sequence(node);
  } else if (op == "ConcatFromSequence") {
    concat_from_sequence(node);
  } else {
    return false;
  }
  return true;
}

void Evaluation::concat_from_sequence(const Node& node) {
  OperatorCall call;
  call.op = "Concat";
  call.opset = node.opset;
  call.outputs = {Element::kUndefined};
  AttributeValue axis;
  axis.integer = graph_.integer(node, "axis", 0);
  call.attributes.emplace("axis", axis);
  const bool is_new = graph_.integer(node, "new_axis", 0) != 0;
  std::vector<Array> parts;
  for (const DatumPtr& item : input(node, 0)->items) {
    Array& array = parts.emplace_back(item->tensor);
    if (!is_new) continue;
    const auto rank = static_cast<std::int64_t>(array.dims.size()) + 1;
    array.dims.insert(array.dims.begin() + (axis.integer < 0 ? axis.integer + rank : axis.integer),
                      1);
  }
  if (parts.empty()) raise("evaluate", graph_.describe(node), ": the sequence is empty");
  // Bytes are moved: 16-bit values pass as integers of that width.
  const Element element = parts[0].element;
  const bool is_low = element == Element::kFloat16 || element == Element::kBFloat16;
  for (Array& array : parts) {
    if (is_low) array.element = Element::kInt16;
    if (element == Element::kString) array.element = Element::kInt64;
    call.inputs.push_back(&array);
  }
  std::vector<Array> results;
  const std::string why = library_.run(call, &results);
  if (!why.empty()) raise<UnsupportedError>("evaluate", graph_.describe(node), ": ", why);
  results.at(0).element = element;
  set(node.outputs.at(0), datum_of(std::move(results[0])));
}

void Evaluation::sequence_insert(const Node& node) {
  std::vector<DatumPtr> all = input(node, 0)->items;
  const std::size_t at = has(node, 2) ? place_in(whole(node, 2), all.size(), true) : all.size();
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(at), input(node, 1));
  set(node.outputs.at(0), sequence_of(std::move(all)));
}

void Evaluation::split_to_sequence(const Node& node) {
  const Array& array = input(node, 0)->tensor;
  std::int64_t axis = graph_.integer(node, "axis", 0);
  if (axis < 0) axis += static_cast<std::int64_t>(array.dims.size());
  const std::int64_t size = array.dims.at(static_cast<std::size_t>(axis));
  std::vector<std::int64_t> parts;
  const bool is_single = !has(node, 1);
  if (is_single || input(node, 1)->tensor.dims.empty()) {
    const std::int64_t each = is_single ? 1 : whole(node, 1);
    if (each < 1) raise("evaluate", graph_.describe(node), ": parts of ", each);
    for (std::int64_t at = 0; at < size; at += each) parts.push_back(std::min(each, size - at));
  } else {
    for (const double part : input(node, 1)->tensor.values())
      parts.push_back(static_cast<std::int64_t>(part));
  }
  const bool drops_axis = is_single && graph_.integer(node, "keepdims", 1) == 0;
  std::vector<DatumPtr> items;
  std::int64_t at = 0;
  for (const std::int64_t part : parts) {
    if (at + part > size) raise("evaluate", graph_.describe(node), " splits more than there is");
    std::vector<Array> slices;
    for (std::int64_t i = 0; i < part; ++i) slices.push_back(slice_at(array, axis, at++));
    items.push_back(datum_of(drops_axis ? slices.at(0) : stacked(slices, axis)));
  }
  set(node.outputs.at(0), sequence_of(std::move(items)));
}

}  // namespace mezzo::convert
