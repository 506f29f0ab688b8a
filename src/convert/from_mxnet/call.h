// One node of MXNet while it is translated: its attributes as values, its inputs, what it may ask
// for, and how it says that it cannot be translated.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/from_mxnet/onnx_writer.h"

namespace mezzo::convert::mxnet {

/// A graph with its parameters, as translations look behind their inputs.
struct Source {
  const Symbol& symbol;
  const NDArrays& arg_params;
  const NDArrays& aux_params;

  /// The arrays that have the variable, or null.
  const NDArrays* holder(const std::string& name) const;
};

class Call {
 public:
  Call(const Source& source, const Node& node, Operands inputs, OnnxWriter& to)
      : writer(to), source_(source), node_(node), inputs_(std::move(inputs)) {}

  OnnxWriter& writer;

  const Node& node() const { return node_; }
  const Source& source() const { return source_; }
  std::size_t input_count() const { return inputs_.size(); }
  const Operands& inputs() const { return inputs_; }
  /// Refuses where the node has no such input.
  const Operand& input(std::size_t i) const;
  /// The sizes of an input, or a refusal that says which shape to give.
  const Dims& dims(const Operand& operand) const;
  /// As above, and a refusal where there are fewer than `least`.
  const Dims& dims(const Operand& operand, std::int64_t least) const;
  std::int64_t rank(const Operand& operand) const {
    return static_cast<std::int64_t>(dims(operand).size());
  }
  /// The parameter that is this input, and who holds it; null if it is computed, or data.
  const NDArrays* parameter(std::size_t i, std::string* name) const;

  // Attributes: the value, or what MXNet takes where it is left out (or None).
  std::int64_t integer(std::string_view key, std::int64_t otherwise) const;
  double number(std::string_view key, double otherwise) const;
  bool flag(std::string_view key, bool otherwise = false) const;
  std::string text(std::string_view key, std::string_view otherwise) const;
  Dims list(std::string_view key, const Dims& otherwise = {}) const;
  /// A list in which single entries may be None.
  std::vector<std::optional<std::int64_t>> holes(std::string_view key) const;
  std::vector<double> numbers(std::string_view key, const std::vector<double>& otherwise) const;
  /// Is it written, and not None?
  bool has(std::string_view key) const;
  /// The type that "dtype" names. 16-bit types are float32: the conversion decides about them.
  Element dtype(Element otherwise) const;

  /// `axis` counted from the front; negative ones need the number of dimensions.
  std::int64_t axis_of(std::int64_t axis, const Operand& operand) const;

  // Nodes that many translations need.
  Operand add(const std::string& op, const Operands& inputs, const Attributes& attributes,
              const Form& form) {
    return writer.add(op, inputs, attributes, form);
  }
  /// An operator with two inputs, the shapes of which are broadcast.
  Operand broadcast(const std::string& op, const Operand& a, const Operand& b);
  Operand broadcast(const std::string& op, const Operand& a, double b) {
    return broadcast(op, a, writer.number(b, a.element));
  }
  /// An operator that changes values only.
  Operand map(const std::string& op, const Operand& x, const Attributes& attributes = {}) {
    return add(op, {x}, attributes, form_of(x));
  }
  /// The rest of a division, with the divisor's sign; 0 if that is 0.
  Operand modulo(const Operand& a, const Operand& b);
  Operand cast(const Operand& x, Element element);
  Operand transpose(const Operand& x, const Dims& order);
  /// To sizes as ONNX's Reshape takes them: 0 keeps a size, -1 is the rest.
  Operand reshape(const Operand& x, const Dims& target, std::optional<Dims> dims);
  Operand unsqueeze(const Operand& x, const Dims& axes);
  Operand squeeze(const Operand& x, const Dims& axes);
  /// From `begin` to `end` along one axis.
  Operand slice(const Operand& x, std::int64_t axis, std::int64_t begin, std::int64_t end);
  Operand concat(const Operands& parts, std::int64_t axis);
  /// All sizes of a value, and one of them (a list of one), as int64 values of the model.
  Operand sizes(const Operand& x);
  Operand size(const Operand& x, std::int64_t axis);
  Operand expand(const Operand& x, const Operand& sizes, std::optional<Dims> dims);
  Operand where(const Operand& condition, const Operand& yes, const Operand& no);

  /// Throws UnsupportedError that names operator and node; `what` ends with what would work.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  std::optional<std::string_view> written(std::string_view key) const;
  [[noreturn]] void misread(std::string_view key, std::string_view text,
                            const char* expected) const;

  const Source& source_;
  const Node& node_;
  Operands inputs_;
};

/// Sizes of values that were broadcast; nothing if they are unknown.
std::optional<Dims> broadcast_dims(const std::optional<Dims>& a, const std::optional<Dims>& b);

/// The product, or kUnknownSize where one is unknown.
std::int64_t product(std::span<const std::int64_t> dims);

}  // namespace mezzo::convert::mxnet
