#include "convert/onnx/element.h"

#include <algorithm>

#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"

namespace mezzo::convert {
namespace {

struct ElementRow {
  std::string_view name;
  std::size_t size;
};

constexpr std::array<ElementRow, 17> kRows{{{"undefined", 0},
                                            {"float32", 4},
                                            {"uint8", 1},
                                            {"int8", 1},
                                            {"uint16", 2},
                                            {"int16", 2},
                                            {"int32", 4},
                                            {"int64", 8},
                                            {"string", 0},
                                            {"bool", 1},
                                            {"float16", 2},
                                            {"float64", 8},
                                            {"uint32", 4},
                                            {"uint64", 8},
                                            {"complex64", 8},
                                            {"complex128", 16},
                                            {"bfloat16", 2}}};

// Types that only quantised models have.
struct SmallRow {
  std::string_view name;
  std::size_t bits;
};

constexpr std::array<SmallRow, 10> kSmallRows{{{"float8e4m3fn", 8},
                                               {"float8e4m3fnuz", 8},
                                               {"float8e5m2", 8},
                                               {"float8e5m2fnuz", 8},
                                               {"uint4", 4},
                                               {"int4", 4},
                                               {"float4e2m1", 4},
                                               {"float8e8m0", 8},
                                               {"uint2", 2},
                                               {"int2", 2}}};

}  // namespace

std::string name_of(Element element) {
  const auto index = static_cast<std::size_t>(element);
  if (index < kRows.size()) return std::string(kRows[index].name);
  if (index - kRows.size() < kSmallRows.size())
    return std::string(kSmallRows[index - kRows.size()].name);
  return "type" + std::to_string(index);
}

std::optional<Element> parse_element(std::string_view name) {
  if (name == "half" || name == "fp16") return Element::kFloat16;
  if (name == "bf16") return Element::kBFloat16;
  if (name == "float" || name == "fp32") return Element::kFloat;
  if (name == "double") return Element::kDouble;
  for (std::size_t i = 1; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<Element>(i);
  }
  return std::nullopt;
}

std::size_t size_of(Element element) {
  const auto index = static_cast<std::size_t>(element);
  return index < kRows.size() ? kRows[index].size : 0;
}

std::size_t bits_of(Element element) {
  const auto index = static_cast<std::size_t>(element);
  if (index < kRows.size()) return 8 * kRows[index].size;
  return index - kRows.size() < kSmallRows.size() ? kSmallRows[index - kRows.size()].bits : 0;
}

Type Type::with(Element other) const {
  Type type = *this;
  type.element = other;
  return type;
}

Type Type::inside() const {
  if (wraps[0] == Wrap::kNone) return {};
  Type type = *this;
  type.wraps = {wraps[1], Wrap::kNone};
  return type;
}

Type Type::wrapped(Wrap wrap) const {
  Type type = *this;
  if (wraps[1] != Wrap::kNone) return {};
  type.wraps = {wrap, wraps[0]};
  return type;
}

bool is_float_based(const Type& type) {
  return type.base == Base::kTensor && type.element == Element::kFloat;
}

Type tensor_of(Element element) {
  Type type;
  type.base = Base::kTensor;
  type.element = element;
  return type;
}

std::string name_of(const Type& type) {
  std::string text;
  for (const Wrap wrap : type.wraps) {
    if (wrap == Wrap::kSequence) text += "seq(";
    if (wrap == Wrap::kOptional) text += "optional(";
  }
  switch (type.base) {
    case Base::kUnknown:
      text += "unknown";
      break;
    case Base::kTensor:
      text += concat({"tensor(", name_of(type.element), ")"});
      break;
    case Base::kSparseTensor:
      text += concat({"sparse_tensor(", name_of(type.element), ")"});
      break;
    case Base::kMap:
      text += concat({"map(", name_of(type.key), ", ", name_of(type.element), ")"});
      break;
    case Base::kOpaque:
      text += "opaque";
      break;
  }
  for (const Wrap wrap : type.wraps) text += wrap == Wrap::kNone ? "" : ")";
  return text;
}

Type read_type(Message& proto) {
  namespace f = field::type;
  Type type;
  if (Field* tensor = proto.find(f::kTensor)) {
    type =
        tensor_of(static_cast<Element>(tensor->open().number(field::tensor_type::kElement) & 0xFF));
  } else if (Field* sparse = proto.find(f::kSparseTensor)) {
    type.base = Base::kSparseTensor;
    type.element = static_cast<Element>(sparse->open().number(field::tensor_type::kElement) & 0xFF);
  } else if (Field* map = proto.find(f::kMap)) {
    type.base = Base::kMap;
    type.key = static_cast<Element>(map->open().number(field::map_type::kKey) & 0xFF);
    if (Field* value = map->open().find(field::map_type::kValue)) {
      if (Field* tensor_value = value->open().find(f::kTensor)) {
        type.element =
            static_cast<Element>(tensor_value->open().number(field::tensor_type::kElement) & 0xFF);
      }
    }
  } else if (proto.find(f::kOpaque) != nullptr) {
    type.base = Base::kOpaque;
  } else {
    for (const auto& [number, wrap] :
         {std::pair{f::kSequence, Wrap::kSequence}, std::pair{f::kOptional, Wrap::kOptional}}) {
      Field* container = proto.find(number);
      if (container == nullptr) continue;
      Field* element = container->open().find(field::container_type::kElement);
      // Containers deeper than two levels stay unknown: no operator takes them.
      Message* inner = element == nullptr ? nullptr : &element->open();
      const bool deep = inner != nullptr && [&] {
        for (const auto outer : {f::kSequence, f::kOptional}) {
          if (Field* second = inner->find(outer)) {
            Field* third = second->open().find(field::container_type::kElement);
            if (third != nullptr && (third->open().find(f::kSequence) != nullptr ||
                                     third->open().find(f::kOptional) != nullptr)) {
              return true;
            }
          }
        }
        return false;
      }();
      if (inner != nullptr && !deep) type = read_type(*inner).wrapped(wrap);
    }
  }
  return type;
}

}  // namespace mezzo::convert
