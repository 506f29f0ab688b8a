// An ONNX model that is being written: nodes and constants, with what is known of every value.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "convert/onnx/document.h"
#include "convert/onnx/element.h"
#include "mezzo/convert_mxnet.h"

namespace mezzo::convert::mxnet {

/// Sizes of dimensions; kUnknownSize where only a run shows it.
using Dims = std::vector<std::int64_t>;
constexpr std::int64_t kUnknownSize = -1;

/// A value of the model.
struct Operand {
  std::string name;  ///< empty: an input that is left out
  Element element = Element::kFloat;
  std::optional<Dims> dims = {};  ///< nothing: not even their number is known

  bool is_there() const { return !name.empty(); }
  bool has_rank(std::size_t rank) const { return dims && dims->size() == rank; }
};

using Operands = std::vector<Operand>;

struct Attribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, Dims, std::vector<std::string>> value;
};
using Attributes = std::vector<Attribute>;

/// The result of a node: an element type, and sizes as far as they are known.
struct Form {
  Element element = Element::kFloat;
  std::optional<Dims> dims = {};
};

/// Like `operand`.
inline Form form_of(const Operand& operand) {
  return {operand.element, operand.dims};
}

/// Writes models of opset 17. Bytes of parameters are not copied: they must outlive the writer.
class OnnxWriter {
 public:
  static constexpr std::int64_t kOpset = 17;

  /// `names` are those of dimensions whose size is unknown.
  Operand input(const std::string& name, const Form& form, const std::vector<std::string>& names);
  /// A parameter under its own name; 16-bit floats become float32.
  Operand parameter(const NDArrays& arrays, const std::string& name);
  /// As above, with its two dimensions exchanged.
  Operand transposed(const NDArrays& arrays, const std::string& name);

  /// Constants: equal ones are written once.
  Operand tensor(Element element, Dims dims, std::string bytes);
  Operand integers(const std::vector<std::int64_t>& values);
  Operand integer(std::int64_t value);
  Operand floats(Dims dims, const std::vector<float>& values);
  /// A number without dimensions, in that type.
  Operand number(double value, Element element);

  /// Nodes and values from here on are named after this node of MXNet.
  void begin(const std::string& node);
  /// Nodes that were made since then are to stay float32.
  void keep_in_float();
  /// Their names, of the ones that are written.
  std::vector<std::string> nodes_in_float() const;
  Operand add(const std::string& op, const Operands& inputs, const Attributes& attributes,
              const Form& form);
  Operands add(const std::string& op, const Operands& inputs, const Attributes& attributes,
               const std::vector<Form>& forms);
  /// Gives a value that was made since begin() another name, where that is free.
  void rename(Operand& operand, const std::string& wanted);
  /// Makes the value a result of the model.
  void result(const Operand& operand, const std::string& name);

  /// Writes the file, and its data beside it where it is large. `document` is what holds it.
  std::int64_t store(const std::filesystem::path& out);
  std::int64_t node_count() const { return static_cast<std::int64_t>(nodes_.size()); }
  std::int64_t constant_count() const { return static_cast<std::int64_t>(constants_.size()); }

 private:
  struct Made {
    std::string op, name;
    std::vector<std::string> inputs, outputs;
    Attributes attributes;
  };
  struct Constant {
    std::string name;
    Element element;
    Dims dims;
    std::string owned;          // the values,
    std::string_view borrowed;  // or those of a parameter
    std::string_view bytes() const { return owned.empty() ? borrowed : owned; }
  };
  struct Declared {
    std::string name;
    Form form;
    std::vector<std::string> names;
  };

  std::string take(const std::string& wanted);
  Operand constant(Constant made);
  // Leaves out what no result needs.
  void prune();
  std::unique_ptr<Message> message_of(const Made& node, Document& document) const;
  std::unique_ptr<Message> message_of(const Declared& value, Document& document) const;
  std::unique_ptr<Message> message_of(const Constant& constant) const;

  std::vector<Made> nodes_;
  std::size_t begun_ = 0;  // the first node of the one that was begun
  std::set<std::string, std::less<>> in_float_;
  std::string prefix_ = "node";
  std::deque<Constant> constants_;
  std::map<std::string, Operand, std::less<>> known_;  // constants by their content
  std::vector<Declared> inputs_, outputs_;
  std::set<std::string, std::less<>> taken_;
  std::map<std::string, int, std::less<>> last_;
};

}  // namespace mezzo::convert::mxnet
