// An operator call as LibTorch's tensors, and the table of what is known.
#pragma once

#include <span>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "convert/engine/operator_call.h"
#include "core/torch.h"

namespace mezzo::convert {

using Tensors = std::vector<at::Tensor>;

/// Ends a call with the reason why it cannot be computed.
template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw std::runtime_error(text.str());
}

/// The inputs as tensors (views of the caller's arrays) and the attributes with their defaults.
class TorchCall {
 public:
  explicit TorchCall(const OperatorCall& call);

  std::int64_t opset() const { return call_.opset; }
  std::string_view op() const { return call_.op; }
  std::size_t outputs() const { return call_.outputs.size(); }
  std::size_t inputs() const { return inputs_.size(); }
  bool has(std::size_t i) const { return i < inputs_.size() && inputs_[i].defined(); }
  /// The i-th input; an Error if it is left out.
  const at::Tensor& in(std::size_t i) const;
  /// An integer input as a list.
  std::vector<std::int64_t> list(std::size_t i) const;

  bool is_given(std::string_view name) const { return call_.attributes.contains(name); }
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const;
  double number(std::string_view name, double otherwise) const;
  std::string text(std::string_view name, std::string_view otherwise) const;
  std::vector<std::int64_t> integers(std::string_view name) const;
  std::vector<double> numbers(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  const Array* tensor(std::string_view name) const;
  /// An attribute of old opsets that is an input in new ones.
  std::vector<std::int64_t> integers(std::string_view name, std::size_t input) const;

 private:
  const OperatorCall& call_;
  Tensors inputs_;
};

at::Tensor tensor_of(const Array&);
at::ScalarType scalar_type(Element);

/// A dimension counted from the end where it is negative.
inline std::int64_t wrapped(std::int64_t dim, std::int64_t rank) {
  return dim < 0 ? dim + rank : dim;
}

struct TorchOperator {
  std::string_view name;
  Tensors (*run)(const TorchCall&);
};

/// The parts of the table, each sorted by name.
std::span<const TorchOperator> attention_operators();
std::span<const TorchOperator> convolution_operators();
std::span<const TorchOperator> elementwise_operators();
std::span<const TorchOperator> image_operators();
std::span<const TorchOperator> indexing_operators();
std::span<const TorchOperator> ngram_operators();
std::span<const TorchOperator> product_operators();
std::span<const TorchOperator> quantised_operators();
std::span<const TorchOperator> random_operators();
std::span<const TorchOperator> recurrent_operators();
std::span<const TorchOperator> reduction_operators();
std::span<const TorchOperator> region_operators();
std::span<const TorchOperator> shape_operators();
std::span<const TorchOperator> spectrum_operators();
std::span<const TorchOperator> training_operators();

}  // namespace mezzo::convert
