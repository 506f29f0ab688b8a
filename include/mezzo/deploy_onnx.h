// ONNX files straight from C++ networks and TorchScript modules.
//
//   mezzo::deploy::export_onnx(net, {x}, "net.onnx");
//   mezzo::deploy::export_onnx(net, {x}, "net.onnx",
//                              {.dynamic_axes = {{"input_0", {{0, "batch"}}}}});
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mezzo/deploy_trace.h"
#include "mezzo/export.h"

namespace mezzo::deploy {

namespace detail {
struct Operand;
class Builder;
}  // namespace detail

/// An operand of an operator while a network is translated to ONNX: a tensor or number of the
/// model that is made, a constant, a list, or nothing. A cheap handle.
class MEZZO_API OnnxValue {
 public:
  /// Nothing: an argument that is left out.
  OnnxValue();
  /// For the library itself.
  explicit OnnxValue(std::shared_ptr<detail::Operand> operand);

  /// Is it left out, None in TorchScript?
  bool is_none() const;
  /// Does it follow from no input of the model?
  bool is_constant() const;
  /// Its value on the examples, lists included.
  c10::IValue example() const;
  /// The type and the sizes that a tensor has on the examples.
  at::ScalarType dtype() const;
  std::vector<std::int64_t> sizes() const;
  /// A constant as what it is; UnsupportedError if it follows from inputs.
  std::int64_t to_int() const;
  double to_double() const;
  bool to_bool() const;
  std::string to_text() const;
  /// The elements of a list or tuple.
  std::vector<OnnxValue> elements() const;

  /// For the library itself.
  const std::shared_ptr<detail::Operand>& operand() const { return operand_; }

 private:
  std::shared_ptr<detail::Operand> operand_;
};

/// An attribute of an ONNX operator.
using OnnxAttribute = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>,
                                   std::vector<double>, at::Tensor, std::vector<std::string>>;
/// Attributes by name.
using OnnxAttributes = std::map<std::string, OnnxAttribute>;

/// The model that is made.
class MEZZO_API OnnxGraph {
 public:
  /// For the library itself.
  explicit OnnxGraph(detail::Builder& builder) : builder_(builder) {}
  /// Appends an operator, "Relu" or "com.acme::Blur", and returns its outputs. Constants among the
  /// operands become initializers; operands that are None are left out.
  std::vector<OnnxValue> add(const std::string& op_type, const std::vector<OnnxValue>& operands,
                             const OnnxAttributes& attributes = {}, int outputs = 1);
  /// A constant tensor.
  OnnxValue constant(const at::Tensor& tensor);
  /// The opset that was asked for.
  int opset() const;

 private:
  detail::Builder& builder_;
};

/// A call of an operator that is to be translated to ONNX.
class MEZZO_API OnnxCall {
 public:
  /// For the library itself.
  OnnxCall(std::string name, std::map<std::string, OnnxValue, std::less<>> operands)
      : name_(std::move(name)), operands_(std::move(operands)) {}
  /// "acme::blur".
  const std::string& name() const { return name_; }
  /// The operand for the argument of that name in the operator's schema. ConfigError if it has
  /// none of that name.
  const OnnxValue& operator[](std::string_view argument) const;

 private:
  std::string name_;
  std::map<std::string, OnnxValue, std::less<>> operands_;
};

/// How an operator is translated to ONNX: gives one value for each of its results.
using OnnxTranslation = std::function<std::vector<OnnxValue>(OnnxGraph&, const OnnxCall&)>;

/// How a network is exported.
struct OnnxOptions {
  /// 13 to 21.
  int opset = 17;
  /// One a tensor, depth first; by default the argument's name for TorchScript modules, else
  /// "input_0", "input_1", ..., and "output_0", ...
  std::vector<std::string> input_names = {}, output_names = {};
  /// By the name of an input (one of `input_names`, or "input_N"): axes that may have any size.
  DynamicAxes dynamic_axes = {};
  /// Run the file, by ONNX Runtime or the built-in evaluator, and compare with the network?
  bool verify = true;
  /// The error that the verification accepts, relative to the range of an output.
  double tolerance = 1e-4;
  /// Operators that the caller translates: by name, "acme::blur". They come before the
  /// library's own rows.
  std::map<std::string, OnnxTranslation> translate = {};
  /// Other inputs on which trace, network and file must agree.
  std::optional<Examples> check_with = {};
  /// Weights in a file of their own beside the model? Above 2 GB they always are.
  bool external_data = false;
  /// Where the judges are; empty: where they are installed.
  std::filesystem::path onnxruntime = {}, evaluator = {};
};

/// The outcome of an export.
struct MEZZO_API ExportReport {
  int nodes = 0;                      ///< operators in the file, bodies included
  std::vector<double> errors;         ///< of each output, relative to its range; the worst run
  std::vector<std::string> warnings;  ///< what the caller should know
  std::string verified;               ///< by whom and on how many sets of inputs; empty: not
  /// For a terminal, and for programs.
  std::string to_text() const;
  std::string to_json() const;
};

/// Exports a TorchScript module, traced or scripted; it is read as in use, whatever its mode.
/// @param module  is not changed
/// @param examples  one call's arguments
/// @param path  the file; written whole or not at all
/// @param options  opset, names, dynamic axes, verification
/// Throws UnsupportedError for an operator that has no form in ONNX, with its name, its module
/// and what would work, ConfigError for options that cannot be, and Error if the verification
/// finds a difference; then nothing is written.
MEZZO_API ExportReport export_onnx(const torch::jit::Module& module, const Examples& examples,
                                   const std::filesystem::path& path,
                                   const OnnxOptions& options = {});

/// The names of LibTorch's operators that have a form in ONNX, sorted, each with the least opset.
MEZZO_API std::vector<std::pair<std::string, int>> onnx_operators();

}  // namespace mezzo::deploy

namespace mezzo::deploy::detail {

/// export_onnx() of a network behind its template.
MEZZO_API ExportReport export_call(const NetworkCall& call, const Examples& examples,
                                   const std::filesystem::path& path, const OnnxOptions& options);

}  // namespace mezzo::deploy::detail

namespace mezzo::deploy {

/// Exports an eager network: traces it as trace() does, and exports the trace.
/// @param net  a module holder, a std::shared_ptr to a module, or an amp::Model
/// @param examples  one call's arguments
/// @param path  the file; written whole or not at all
/// @param options  opset, names, dynamic axes, verification
/// @return what was exported
template <Traceable Net>
ExportReport export_onnx(Net net, const Examples& examples, const std::filesystem::path& path,
                         const OnnxOptions& options = {}) {
  return detail::export_call(detail::network_call(std::move(net)), examples, path, options);
}

}  // namespace mezzo::deploy
