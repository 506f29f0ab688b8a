#include "convert/array.h"

#include <cstring>

#include "convert/low.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

template <typename T>
void append(const std::string& bytes, std::vector<double>& values) {
  const std::size_t count = bytes.size() / sizeof(T);
  values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values.push_back(static_cast<double>(value));
  }
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
      for (std::size_t i = 0; i + 2 <= bytes.size(); i += 2) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, bytes.data() + i, 2);
        values.push_back(widen(element, bits));
      }
      break;
    default:
      break;
  }
  return values;
}

Array converted(const Array& array, Element element) {
  if (array.element == element) return array;
  Array out{element, array.dims, {}};
  const std::vector<double> values = array.values();
  std::vector<float> floats(values.begin(), values.end());
  if (element == Element::kFloat) {
    out.bytes.assign(reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float));
    return out;
  }
  if (element != Element::kFloat16 && element != Element::kBFloat16) {
    raise("convert", "values cannot be turned into ", name_of(element));
  }
  std::vector<std::uint16_t> bits(floats.size());
  round_to(element, floats, bits);
  out.bytes.assign(reinterpret_cast<const char*>(bits.data()), bits.size() * 2);
  return out;
}

}  // namespace mezzo::convert
