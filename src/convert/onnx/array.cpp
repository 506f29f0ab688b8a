#include "convert/onnx/array.h"

#include <algorithm>
#include <cstring>

#include "convert/onnx/low.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

template <typename T>
void append(const std::string& bytes, std::vector<double>& values) {
  const std::size_t count = bytes.size() / sizeof(T);
  values.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
}

std::span<const std::uint16_t> narrow_of(const Array& array) {
  return {reinterpret_cast<const std::uint16_t*>(array.bytes.data()), array.bytes.size() / 2};
}

bool is_narrow(Element element) {
  return element == Element::kFloat16 || element == Element::kBFloat16;
}

}  // namespace

std::uint64_t Array::count() const {
  std::uint64_t count = 1;
  for (const std::int64_t dim : dims) count *= static_cast<std::uint64_t>(dim);
  return count;
}

std::vector<double> Array::values() const {
  std::vector<double> values;
  switch (element) {
    case Element::kFloat:
      append<float>(bytes, values);
      break;
    case Element::kDouble:
      append<double>(bytes, values);
      break;
    case Element::kInt8:
      append<std::int8_t>(bytes, values);
      break;
    case Element::kBool:
    case Element::kUint8:
      append<std::uint8_t>(bytes, values);
      break;
    case Element::kInt16:
      append<std::int16_t>(bytes, values);
      break;
    case Element::kUint16:
      append<std::uint16_t>(bytes, values);
      break;
    case Element::kInt32:
      append<std::int32_t>(bytes, values);
      break;
    case Element::kUint32:
      append<std::uint32_t>(bytes, values);
      break;
    case Element::kInt64:
      append<std::int64_t>(bytes, values);
      break;
    case Element::kUint64:
      append<std::uint64_t>(bytes, values);
      break;
    case Element::kFloat16:
    case Element::kBFloat16:
      append<float>(converted(*this, Element::kFloat).bytes, values);
      break;
    default:
      break;
  }
  return values;
}

std::size_t stored_size_of(Element element) {
  return element == Element::kString ? sizeof(std::int64_t) : size_of(element);
}

std::span<const float> floats_of(const Array& array) {
  return {reinterpret_cast<const float*>(array.bytes.data()), array.bytes.size() / sizeof(float)};
}

std::span<float> floats_of(Array& array) {
  return {reinterpret_cast<float*>(array.bytes.data()), array.bytes.size() / sizeof(float)};
}

Array converted(const Array& array, Element element) {
  if (array.element == element) return array;
  Array out{element, array.dims, {}};
  if (element == Element::kFloat && is_narrow(array.element)) {
    out.bytes.resize(narrow_of(array).size() * sizeof(float));
    widen_to(array.element, narrow_of(array), floats_of(out));
    return out;
  }
  if (element != Element::kFloat && !is_narrow(element))
    raise("convert", "values cannot be turned into ", name_of(element));
  if (array.element != Element::kFloat) {
    Array wide{Element::kFloat, array.dims, {}};
    const std::vector<double> values = array.values();
    wide.bytes.resize(values.size() * sizeof(float));
    std::ranges::transform(values, floats_of(wide).begin(),
                           [](double value) { return static_cast<float>(value); });
    return converted(wide, element);
  }
  out.bytes.resize(floats_of(array).size() * 2);
  round_to(element, floats_of(array),
           {reinterpret_cast<std::uint16_t*>(out.bytes.data()), floats_of(array).size()});
  return out;
}

}  // namespace mezzo::convert
