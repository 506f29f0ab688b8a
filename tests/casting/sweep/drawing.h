// Arguments for any overload, drawn from its schema.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

namespace mezzo::casting::sweep {

using torch::jit::Stack;

/// Draws small tensors, numbers and words for the parameters of an overload. Most drawings do not
/// fit together; enough of them do.
class Drawing {
 public:
  Drawing(std::string_view overload, std::uint64_t attempt);

  /// Nothing where a parameter has a type that is not drawn (names of dimensions, storages).
  std::optional<Stack> draw(const c10::FunctionSchema& schema);
  /// A number below `end`.
  std::uint64_t below(std::uint64_t end) { return random_() % end; }

 private:
  using Shape = std::vector<std::int64_t>;

  bool chance(int percent) { return below(100) < static_cast<std::uint64_t>(percent); }
  template <typename T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[below(choices.size())];
  }
  at::Tensor tensor(const c10::Argument& argument);
  at::Tensor values(const Shape& shape);
  std::int64_t integer(std::string_view name);
  std::optional<c10::IValue> value(const c10::Argument& argument, const c10::TypePtr& type);
  std::optional<c10::IValue> list(const c10::Argument& argument, const c10::TypePtr& element);
  c10::List<std::int64_t> integers(const c10::Argument& argument, std::size_t size);

  std::mt19937_64 random_;
  Shape shape_;  // of most tensors of the call
  bool alike_ = true;
};

}  // namespace mezzo::casting::sweep
