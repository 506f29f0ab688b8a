#include "convert/onnx/tensor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "convert/onnx/fields.h"
#include "convert/onnx/low.h"
#include "convert/onnx/texts.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

namespace f = field::tensor;

constexpr std::size_t kChunk = 1 << 16;

Element element_of(const Message& tensor) {
  return static_cast<Element>(tensor.number(f::kType) & 0xFF);
}

std::uint64_t element_count(const Tensor& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t dim : tensor.dims) {
    if (dim < 0) raise("onnx", "tensor '", tensor.name, "' has a negative dimension");
    if (dim == 0) return 0;
    if (count > (std::uint64_t{1} << 58) / static_cast<std::uint64_t>(dim)) {
      raise("onnx", "tensor '", tensor.name, "' has more elements than memory could hold");
    }
    count *= static_cast<std::uint64_t>(dim);
  }
  return count;
}

std::uint64_t parse_number(const Tensor& tensor, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    raise("onnx", "external data of '", tensor.name, "': '", text, "' is no size");
  }
  return value;
}

std::string_view external_bytes(Document& document, const Tensor& tensor, const Message& message) {
  std::string_view location;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  bool has_length = false;
  for (const Field& field : message.fields()) {
    if (field.number != f::kExternalData || field.wire != Wire::kBytes) continue;
    const Message entry = Message::parse(field.bytes);
    const std::string_view key = entry.text(field::pair::kKey);
    const std::string_view value = entry.text(field::pair::kValue);
    if (key == "location") location = value;
    if (key == "offset") offset = parse_number(tensor, value);
    if (key == "length") {
      length = parse_number(tensor, value);
      has_length = true;
    }
  }
  // If no length is given the shape implies it, if elements are whole bytes.
  const std::size_t size = size_of(tensor.element);
  if (!has_length && size != 0)
    return document.external(location, offset, tensor.count * size, false);
  return document.external(location, offset, length, !has_length);
}

std::uint64_t stored_floats(const Message& message) {
  std::uint64_t count = 0;
  for_each_field(message, f::kFloatData, [&](const Field& field) {
    const bool is_packed = field.wire == Wire::kBytes && field.bytes.size() % 4 == 0;
    if (!is_packed && field.wire != Wire::kFixed32)
      raise("onnx", "tensor '", message.text(f::kName), "' has float_data that are no floats");
    count += is_packed ? field.bytes.size() / 4 : 1;
  });
  return count;
}

class RoundedContent final : public Content {
 public:
  RoundedContent(Document& document, Tensor tensor, Element low, const Bounds& bounds)
      : document_(document), tensor_(std::move(tensor)), low_(low), bounds_(bounds) {
    // The message that holds the values may go before this does; the bytes behind it do not.
    if (tensor_.raw.empty()) {
      values_ = tensor_.message->clone();
      std::erase_if(values_.fields(),
                    [](const Field& field) { return field.number != f::kFloatData; });
    }
    tensor_.message = &values_;
  }

  std::uint64_t size() const override { return tensor_.count * 2; }

  void write(Sink& sink) const override {
    std::vector<std::uint16_t> bits(std::clamp<std::uint64_t>(tensor_.count, 1, kChunk));
    std::vector<float> brought;
    for_each_chunk(tensor_, [&](std::span<const float> values) {
      if (!bounds_.is_open()) {
        brought.assign(values.begin(), values.end());
        for (float& value : brought) value = bounds_.bring(value);
        values = brought;
      }
      round_to(low_, values, std::span(bits).first(values.size()));
      sink.write({reinterpret_cast<const char*>(bits.data()), values.size() * 2});
    });
    document_.release(tensor_.raw);
  }

 private:
  Document& document_;
  Tensor tensor_;
  Message values_;
  Element low_;
  Bounds bounds_;
};

}  // namespace

bool is_float_tensor(const Message& tensor) {
  return element_of(tensor) == Element::kFloat;
}

Tensor read_tensor(Document& document, const Message& message) {
  Tensor tensor;
  tensor.message = &message;
  tensor.name = message.text(f::kName);
  tensor.element = element_of(message);
  tensor.dims = repeated_integers(message, f::kDims);
  tensor.count = element_count(tensor);
  if (message.find(f::kSegment) != nullptr) {
    raise("onnx", "tensor '", tensor.name, "' is stored in segments, which no ONNX version reads");
  }
  tensor.is_external = message.number(f::kLocation) == 1;
  if (tensor.is_external) {
    tensor.raw = external_bytes(document, tensor, message);
  } else {
    tensor.raw = message.text(f::kRawData);
  }
  const std::size_t size = size_of(tensor.element);
  if (size != 0 && tensor.raw.data() != nullptr && !tensor.raw.empty() &&
      tensor.raw.size() != tensor.count * size) {
    raise("onnx", "tensor '", tensor.name, "' holds ", tensor.raw.size(),
          " bytes where its shape needs ", tensor.count * size);
  }
  if (tensor.element == Element::kFloat && tensor.raw.empty() &&
      stored_floats(message) != tensor.count) {
    raise("onnx", "tensor '", tensor.name, "' holds ", stored_floats(message),
          " values where its shape needs ", tensor.count);
  }
  return tensor;
}

void for_each_chunk(const Tensor& tensor,
                    const std::function<void(std::span<const float>)>& visit) {
  // At least one: a tensor may hold more than its shape says.
  std::vector<float> chunk(std::clamp<std::uint64_t>(tensor.count, 1, kChunk));
  const auto from_bytes = [&](std::string_view bytes) {
    // Tensors of a data file stand where floats may stand; those inside a model often do not.
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(float) == 0;
    for (; is_aligned && bytes.size() >= 4 * kChunk; bytes.remove_prefix(4 * kChunk)) {
      visit({reinterpret_cast<const float*>(bytes.data()), kChunk});
    }
    while (bytes.size() >= 4) {
      const std::size_t count = std::min(bytes.size() / 4, chunk.size());
      std::memcpy(chunk.data(), bytes.data(), count * 4);
      visit(std::span(chunk).first(count));
      bytes.remove_prefix(count * 4);
    }
  };
  if (!tensor.raw.empty()) return from_bytes(tensor.raw);
  std::size_t filled = 0;
  const auto flush = [&] {
    if (filled != 0) visit(std::span(chunk).first(std::exchange(filled, 0)));
  };
  for_each_field(*tensor.message, f::kFloatData, [&](const Field& field) {
    if (field.wire == Wire::kBytes) {
      flush();  // both ways may mix, and share the chunk
      from_bytes(field.bytes);
    } else if (field.wire == Wire::kFixed32) {
      const auto bits = static_cast<std::uint32_t>(field.value);
      std::memcpy(&chunk[filled++], &bits, 4);
      if (filled == chunk.size()) flush();
    }
  });
  flush();
}

namespace {

template <typename T>
void append_as_doubles(std::string_view bytes, std::vector<double>& values) {
  for (; bytes.size() >= sizeof(T); bytes.remove_prefix(sizeof(T))) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    values.push_back(static_cast<double>(value));
  }
}

void append_raw(const Tensor& tensor, std::vector<double>& values) {
  switch (tensor.element) {
    case Element::kFloat:
      return append_as_doubles<float>(tensor.raw, values);
    case Element::kDouble:
      return append_as_doubles<double>(tensor.raw, values);
    case Element::kInt64:
      return append_as_doubles<std::int64_t>(tensor.raw, values);
    case Element::kInt32:
      return append_as_doubles<std::int32_t>(tensor.raw, values);
    case Element::kBool:
    case Element::kUint8:
      return append_as_doubles<std::uint8_t>(tensor.raw, values);
    case Element::kInt8:
      return append_as_doubles<std::int8_t>(tensor.raw, values);
    case Element::kFloat16:
    case Element::kBFloat16:
      for (std::size_t i = 0; i + 2 <= tensor.raw.size(); i += 2) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, tensor.raw.data() + i, 2);
        values.push_back(widen(tensor.element, bits));
      }
      return;
    default:
      return;
  }
}

}  // namespace

std::vector<double> small_values(const Tensor& tensor, std::uint64_t limit) {
  std::vector<double> values;
  if (tensor.count > limit) return values;
  if (!tensor.raw.empty()) {
    append_raw(tensor, values);
    return values;
  }
  if (tensor.element == Element::kFloat) {
    for_each_chunk(tensor, [&](std::span<const float> chunk) {
      values.insert(values.end(), chunk.begin(), chunk.end());
    });
    return values;
  }
  const bool wide = tensor.element == Element::kInt64;
  for (const std::int64_t value :
       repeated_integers(*tensor.message, wide ? f::kInt64Data : f::kInt32Data)) {
    const bool low = tensor.element == Element::kFloat16 || tensor.element == Element::kBFloat16;
    values.push_back(low ? widen(tensor.element, static_cast<std::uint16_t>(value))
                         : static_cast<double>(value));
  }
  return values;
}

namespace {

template <typename T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Doubles have a field of their own; every integer type and the 16-bit floats stand in integers.
void append_listed(const Tensor& tensor, std::string& bytes) {
  if (tensor.element == Element::kFloat) {
    return for_each_chunk(tensor, [&](std::span<const float> chunk) {
      bytes.append(reinterpret_cast<const char*>(chunk.data()), chunk.size_bytes());
    });
  }
  if (tensor.element == Element::kDouble) {
    for_each_field(*tensor.message, f::kDoubleData, [&](const Field& field) {
      if (field.wire == Wire::kFixed64) put(bytes, field.value);
      if (field.wire == Wire::kBytes) bytes.append(field.bytes);
    });
    return;
  }
  const bool is_unsigned = tensor.element == Element::kUint32 || tensor.element == Element::kUint64;
  const std::uint32_t number = tensor.element == Element::kInt64 ? f::kInt64Data
                               : is_unsigned                     ? f::kUint64Data
                                                                 : f::kInt32Data;
  for (const std::int64_t value : repeated_integers(*tensor.message, number)) {
    // Little-endian: the low bytes come first.
    bytes.append(reinterpret_cast<const char*>(&value), size_of(tensor.element));
  }
}

Array strings_of(const Tensor& tensor) {
  std::vector<std::string> texts;
  for_each_field(*tensor.message, f::kStringData,
                 [&](const Field& field) { texts.emplace_back(field.bytes); });
  if (texts.size() != tensor.count)
    raise("onnx", "tensor '", tensor.name, "' has ", texts.size(), " strings instead of ",
          tensor.count);
  return array_of(texts, tensor.dims);
}

}  // namespace

Array array_of(Document& document, const Message& message) {
  const Tensor tensor = read_tensor(document, message);
  if (tensor.element == Element::kString) return strings_of(tensor);
  const std::size_t size = size_of(tensor.element);
  if (size == 0 || size > 8)
    raise<UnsupportedError>("onnx", "tensor '", tensor.name, "' of type ", name_of(tensor.element));
  Array array{tensor.element, tensor.dims, std::string(tensor.raw)};
  if (array.bytes.empty()) append_listed(tensor, array.bytes);
  if (array.bytes.size() != tensor.count * size) {
    raise("onnx", "tensor '", tensor.name, "' has ", array.bytes.size(), " bytes instead of ",
          tensor.count * size);
  }
  return array;
}

std::shared_ptr<const Content> rounded_content(Document& document, const Tensor& tensor,
                                               Element low, const Bounds& bounds) {
  return std::make_shared<RoundedContent>(document, tensor, low, bounds);
}

Message without_values(const Message& tensor) {
  constexpr std::array kData{f::kFloatData,  f::kInt32Data,    f::kStringData,
                             f::kInt64Data,  f::kRawData,      f::kDoubleData,
                             f::kUint64Data, f::kExternalData, f::kLocation};
  Message copy = tensor.clone();
  for (const std::uint32_t number : kData) copy.remove(number);
  return copy;
}

Message rounded_tensor(Document& document, const Message& source, Element low,
                       std::string_view name, const Bounds& bounds) {
  const Tensor tensor = read_tensor(document, source);
  if (tensor.element != Element::kFloat) {
    raise("onnx", "tensor '", tensor.name, "' holds ", name_of(tensor.element),
          " where float32 was expected");
  }
  Message copy = without_values(source);
  copy.set(f::kType, static_cast<std::uint64_t>(low));
  if (!name.empty()) copy.set(f::kName, name);
  copy.add(f::kRawData, rounded_content(document, tensor, low, bounds));
  return copy;
}

}  // namespace mezzo::convert
