// ONNX's element types (TensorProto.DataType), and types of values: tensors, sequences, optionals.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "convert/onnx/wire.h"

namespace mezzo::convert {

enum class Element : std::uint8_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBFloat16 = 16,
  kFloat8E4M3FN = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2FNUZ = 20,
  kUint4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,
  kUint2 = 25,
  kInt2 = 26,
};

/// "float32", "bfloat16", "int4": the names that reports use. Types that no opset knows are
/// "type99" and so on.
std::string name_of(Element);

/// The type with that name ("float16", "half", "fp16", "float", ...), or nothing.
std::optional<Element> parse_element(std::string_view name);

/// Bytes of one element; 0 if nothing is computed with it here (strings, 8-bit floats) or
/// elements have no whole bytes (4-bit types).
std::size_t size_of(Element);

/// Bits of one element in a file; 0 for strings and unknown types.
std::size_t bits_of(Element);

/// The containers around the tensors of a value, outermost first.
enum class Wrap : std::uint8_t { kNone = 0, kSequence, kOptional };

enum class Base : std::uint8_t { kUnknown, kTensor, kSparseTensor, kMap, kOpaque };

/// The type of a value, shapes left out. A map's element is that of its values.
struct Type {
  Base base = Base::kUnknown;
  Element element = Element::kUndefined;
  Element key = Element::kUndefined;
  std::array<Wrap, 2> wraps{};

  bool operator==(const Type&) const = default;
  bool is_known() const { return base != Base::kUnknown; }
  bool is_plain_tensor() const { return base == Base::kTensor && wraps[0] == Wrap::kNone; }
  /// The same containers around another element type.
  Type with(Element) const;
  /// The type inside the outermost container; unknown for a plain tensor.
  Type inside() const;
  Type wrapped(Wrap) const;
};

Type tensor_of(Element);

/// A float32 tensor, or one inside sequences and optionals?
bool is_float_based(const Type&);

/// "tensor(float32)", "seq(tensor(int64))", "optional(tensor(float16))".
std::string name_of(const Type&);

/// Reads a TypeProto. Shapes are not looked at.
Type read_type(Message& type);

}  // namespace mezzo::convert
