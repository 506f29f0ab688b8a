// Activation recomputation: a part of a network keeps its inputs only and is run again in the
// backward pass.
//
//   at::Tensor y = mezzo::recompute(block, x);                        // a module
//   at::Tensor z = mezzo::recompute([&](at::Tensor a) { return net->forward(a); }, y);
//   at::Tensor out = mezzo::recompute_sequential(layers, 8, x);       // 64 layers in 8 segments
//
// The second run finds the casts (Autocast scopes, levels, LibTorch's own autocast), the random
// state and the weights of the first one, so that gradients are the same to the bit; only a tensor
// that is used both inside and outside, three times in all or more, has its gradient added up in
// another order. Running statistics of batch norms move in the first run alone.
//
// Calls nest, and work below create_graph, retain_graph, autograd::grad and data parallelism: to
// the graph around it a recomputed part is one node with edges to its inputs and to all weights it
// uses, captured ones too, and each weight gets one gradient from it.
#pragma once

#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mezzo/autocast.h"
#include "mezzo/containers.h"
#include "mezzo/export.h"

namespace torch::nn {
class Sequential;
}  // namespace torch::nn

namespace mezzo::recomputation {

/// Calls the visitor with each tensor of a value, in order; what the visitor assigns stays.
template <typename T, typename Visitor>
void for_each_tensor(T& value, const Visitor& visit) {
  if constexpr (std::is_base_of_v<at::Tensor, T>) {
    visit(value);
  } else if constexpr (!amp::detail::Castable<T>::value || amp::detail::Castable<T>::borrows) {
    return;
  } else if constexpr (amp::detail::PackedSequenceLike<T>) {
    at::Tensor data = value.data();
    visit(data);
    value = T(data, value.batch_sizes(), value.sorted_indices(), value.unsorted_indices());
  } else if constexpr (amp::detail::OrderedDictLike<T>) {
    for (auto& item : value) for_each_tensor(item.value(), visit);
  } else if constexpr (requires { typename T::mapped_type; }) {
    for (auto& item : value) for_each_tensor(item.second, visit);
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) for_each_tensor(*value, visit);
  } else if constexpr (requires {
                         value.begin();
                         value.end();
                       }) {
    for (auto& item : value) for_each_tensor(item, visit);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... items) { (for_each_tensor(items, visit), ...); }, value);
  }
}

/// The stored form of an argument: a copy; for a list that only points at its elements, the
/// elements.
template <typename T>
struct KeptArgument {
  using type = std::decay_t<T>;
};
template <typename T>
struct KeptArgument<c10::ArrayRef<T>> {
  using type = std::vector<T>;
};

/// A function with its arguments, to be called any number of times.
template <typename F, typename... Kept>
class RepeatedCall {
 public:
  template <typename... Args>
  explicit RepeatedCall(F function, Args&&... args)
      : function_(std::move(function)), arguments_(std::forward<Args>(args)...) {}

  /// The result, by value. Each call gets copies of its own.
  auto run() const {
    return std::apply(
        [function = function_](auto&&... args) mutable {
          if constexpr (std::is_invocable_v<F&, Kept...>) {
            return std::invoke(function, std::forward<decltype(args)>(args)...);
          } else {
            return function->forward(std::forward<decltype(args)>(args)...);
          }
        },
        std::tuple<Kept...>(arguments_));
  }

  std::vector<at::Tensor> inputs() const {
    std::vector<at::Tensor> found;
    std::tuple<Kept...> arguments = arguments_;
    std::apply(
        [&](auto&... args) {
          (for_each_tensor(args, [&](const at::Tensor& tensor) { found.push_back(tensor); }), ...);
        },
        arguments);
    return found;
  }

 private:
  F function_;
  std::tuple<Kept...> arguments_;
};

template <typename T>
std::vector<at::Tensor> tensors_in(T& value) {
  std::vector<at::Tensor> found;
  for_each_tensor(value, [&](const at::Tensor& tensor) { found.push_back(tensor); });
  return found;
}

/// The surroundings of a first run, and what becomes of its graph.
class MEZZO_API Recomputation {
 public:
  /// Made before the first run. Does nothing if no gradients are recorded.
  explicit Recomputation(std::vector<at::Tensor> inputs);
  ~Recomputation();
  Recomputation(const Recomputation&) = delete;
  Recomputation& operator=(const Recomputation&) = delete;

  /// The outputs of the first run with one node in place of the graph behind them, which calls
  /// `again` in the backward pass.
  std::vector<at::Tensor> hide(std::vector<at::Tensor> outputs,
                               std::function<std::vector<at::Tensor>()> again);

  struct Begin;

 private:
  std::unique_ptr<Begin> begin_;
};

}  // namespace mezzo::recomputation

namespace mezzo {

/// Calls the function and returns its result; the tensors that it saves for the backward pass are
/// freed at once, and made again by a second call in the backward pass.
/// @param fn  anything callable, a module holder, or a std::shared_ptr to a module. Tensors and
///   modules that it captures get their gradients as well. It must do the same when called again;
///   if it gives other results or uses other weights, the backward pass throws Error.
/// @param args  copied, as std::async does (std::ref where a reference is meant), and handed over
///   as rvalues. Tensors may be nested in containers as in containers.h. One that is written in
///   place before the backward pass makes it throw Error, as does a weight.
/// @return what the function returns, by value: one tensor, any container of tensors, and anything
///   else beside them. Tensors inside a type of the user's own keep their graph.
/// Random numbers are repeated where they come from the default generators of processors and of the
/// devices that the arguments are on.
template <class F, class... Args>
auto recompute(F fn, Args&&... args) {
  using Call = recomputation::RepeatedCall<
      F, typename recomputation::KeptArgument<std::decay_t<Args>>::type...>;
  const auto call = std::make_shared<const Call>(std::move(fn), std::forward<Args>(args)...);
  recomputation::Recomputation recomputation(call->inputs());
  auto result = call->run();
  const std::vector<at::Tensor> hidden =
      recomputation.hide(recomputation::tensors_in(result), [call] {
        auto repeated = call->run();
        return recomputation::tensors_in(repeated);
      });
  auto next = hidden.begin();
  recomputation::for_each_tensor(result, [&](at::Tensor& tensor) { tensor = *next++; });
  return result;
}

/// Runs the modules in `segments` groups of nearly equal length, all but the last of which are
/// recomputed (what the last one saves is needed at once). About the square root of their number
/// takes the least memory.
/// @throws ConfigError for less than one segment or more segments than modules, Error if a
///   module at the end of a segment does not return a tensor
MEZZO_API at::Tensor recompute_sequential(torch::nn::Sequential modules, int segments,
                                          at::Tensor x);

}  // namespace mezzo
