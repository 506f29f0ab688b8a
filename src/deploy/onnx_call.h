// A call of one of LibTorch's operators while it is translated to ONNX, and the table of
// translations.
#pragma once

#include <ATen/core/function_schema.h>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/onnx_builder.h"

namespace mezzo::deploy::detail {

/// The operands of a call by the names of its schema, and its results on the examples. Names of
/// values in the model are strings; a row gives one for each result.
class Call {
 public:
  Call(Builder& builder, const c10::FunctionSchema& schema, std::vector<OnnxValue> operands,
       std::vector<std::vector<c10::IValue>> results)
      : g(builder), schema_(schema), operands_(std::move(operands)), results_(std::move(results)) {}

  Builder& g;

  const c10::FunctionSchema& schema() const { return schema_; }
  bool takes(std::string_view argument) const;
  /// Given, and not None?
  bool has(std::string_view argument) const;
  /// `self` and `other` are `a` and `b` in the schemas for numbers of scripts.
  const OnnxValue& arg(std::string_view argument) const;
  /// The operand as a tensor of the model; cast to a type; as a list of integers.
  std::string x(std::string_view argument = "self") const { return g.name_of(arg(argument)); }
  std::string x(std::string_view argument, at::ScalarType type) const {
    return as(arg(argument), type);
  }
  std::string as(const OnnxValue& value, at::ScalarType type) const;
  std::string list(std::string_view argument) const { return g.list_of(arg(argument)); }
  /// Constants; UnsupportedError if they follow from inputs.
  std::int64_t i(std::string_view argument) const;
  std::int64_t i(std::string_view argument, std::int64_t otherwise) const {
    return has(argument) ? i(argument) : otherwise;
  }
  double d(std::string_view argument) const;
  bool b(std::string_view argument) const { return i(argument) != 0; }
  std::string s(std::string_view argument) const { return arg(argument).to_text(); }
  std::vector<std::int64_t> is(std::string_view argument) const;
  bool is_fixed(std::string_view argument) const {
    return has(argument) && is_constant(arg(argument));
  }

  /// The operands, on the examples.
  at::Tensor example(std::string_view argument = "self", std::size_t k = 0) const {
    return example_of(arg(argument), k).toTensor();
  }
  at::ScalarType type(std::string_view argument = "self") const;
  std::int64_t rank(std::string_view argument = "self") const { return example(argument).dim(); }
  bool is_float(std::string_view argument = "self") const {
    return at::isFloatingType(type(argument));
  }
  /// A dimension of the operand, counted from the front.
  std::int64_t dim(std::string_view argument = "dim", std::string_view of = "self") const;
  /// The sizes of each dimension in all runs, of an operand and of a result.
  using Columns = std::vector<std::vector<std::int64_t>>;
  Columns columns_of(const OnnxValue& value) const;
  Columns columns_of_result(std::size_t i = 0) const {
    return columns_of(made_of({}, results_[i]));
  }
  /// A size that is the same in all runs; -1: it is not.
  std::int64_t fixed_size(const OnnxValue& value, std::int64_t dimension) const;
  std::int64_t fixed_size(std::string_view argument, std::int64_t dimension) const {
    return fixed_size(arg(argument), dimension);
  }

  /// The results, on the examples.
  std::size_t results() const { return results_.size(); }
  const c10::IValue& result(std::size_t i = 0, std::size_t k = 0) const { return results_[i][k]; }
  at::ScalarType out_type(std::size_t i = 0) const;
  std::int64_t out_rank(std::size_t i = 0) const { return result(i).toTensor().dim(); }
  std::int64_t fixed_out(std::int64_t dimension, std::size_t i = 0) const;

  // Pieces that many rows share.
  std::string one(std::string_view op, const Names& in,
                  const OnnxAttributes& attributes = {}) const {
    return g.op(op, in, attributes);
  }
  /// A float operator on the first argument in the result's type.
  std::string unary(std::string_view op, const OnnxAttributes& attributes = {}) const;
  std::string constant(double value) const { return g.number(value, out_type()); }
  std::string gelu(const std::string& x, bool by_tanh = false) const;
  /// x times the turned weights, plus the bias if there is one. Constant weights are stored turned.
  std::string dense(const std::string& x, std::string_view weight, std::string_view bias) const;
  /// Sizes of a tensor as a list of integers: from `begin` to `end`.
  std::string sizes(const std::string& tensor, std::int64_t begin, std::int64_t end) const;
  /// The size of the result at `d` as the size of one dimension of the tensor, or as the product of
  /// neighbours, if it is that in all runs; else nothing.
  std::string neighbours_product(const std::string& tensor, const OnnxValue& like, std::int64_t d,
                                 std::size_t result) const;
  /// The tensor with dimensions of one that the result has and it has not, or the other way round;
  /// nothing if they differ in more.
  std::string with_other_ones(const std::string& tensor, const OnnxValue& like,
                              std::size_t result) const;
  /// The tensor with sizes that are its own at any place, or numbers, or one that follows from the
  /// others; nothing if there are more.
  std::string with_moved_sizes(const std::string& tensor, const OnnxValue& like,
                               std::size_t result) const;
  /// The tensor with the sizes that the result has in each of the runs.
  std::string reshaped(const std::string& tensor, const OnnxValue& like,
                       std::size_t result = 0) const;
  /// The tensor with these sizes, of which a zero means no elements.
  std::string resized(const std::string& tensor, const std::vector<std::int64_t>& sizes) const;
  std::string transposed(const std::string& tensor, std::int64_t rank, std::int64_t a,
                         std::int64_t b) const;
  std::string sliced(const std::string& tensor, std::int64_t axis, std::int64_t begin,
                     std::int64_t end) const;
  std::string squeezed(const std::string& tensor, const std::vector<std::int64_t>& axes) const;
  std::string unsqueezed(const std::string& tensor, const std::vector<std::int64_t>& axes) const;
  /// A reduction by an operator whose axes are an input from some opset on.
  std::string reduced(std::string_view op, const std::string& tensor,
                      std::vector<std::int64_t> axes, bool keep, std::int64_t rank) const;
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  const c10::FunctionSchema& schema_;
  std::vector<OnnxValue> operands_;
  std::vector<std::vector<c10::IValue>> results_;
};

/// How an operator is translated. Its names, separated by spaces, have neither overload nor the
/// underscore of operators that write in place.
struct Row {
  std::string_view names;
  int opset;  // the least
  Names (*say)(const Call&);
};

/// The parts of the table.
std::span<const Row> elementwise_rows();
std::span<const Row> comparison_rows();
std::span<const Row> reduction_rows();
std::span<const Row> shape_rows();
std::span<const Row> index_rows();
std::span<const Row> product_rows();
std::span<const Row> image_rows();
std::span<const Row> padding_rows();
std::span<const Row> norm_rows();
std::span<const Row> factory_rows();
std::span<const Row> recurrent_rows();
std::span<const Row> composite_rows();
std::span<const Row> loss_rows();
std::span<const Row> matrix_rows();
std::span<const Row> window_rows();
std::span<const Row> transformer_rows();
std::span<const Row> running_rows();
std::span<const Row> random_rows();
std::span<const Row> complex_rows();
std::span<const Row> spectrum_rows();

/// All parts.
std::vector<std::span<const Row>> all_rows();

/// Does the operator write its first argument?
bool writes(const c10::FunctionSchema& schema);

/// The name by which the table knows an operator.
std::string row_name(const c10::FunctionSchema& schema);

/// Rows by each of their names; the first one of a name stays.
void add_rows(std::span<const Row> rows, std::map<std::string_view, const Row*>& to);

/// Null: there is none.
const Row* find_row(std::string_view name);

/// Why an operator of LibTorch ("special_i1") has no row; empty: it has one, or nobody asked.
std::string_view why_not_in_onnx(std::string_view name);

}  // namespace mezzo::deploy::detail
