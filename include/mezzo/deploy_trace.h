// From an eager C++ network to a TorchScript module.
//
//   torch::jit::Module traced = mezzo::deploy::trace(net, {x});
//   traced.save("net.pt");
//
// The network is run once while LibTorch's tracer listens. Parameters and buffers keep their names
// and, unless they are to be copied, their tensors. Sizes that the network's own code reads
// (`x.size(0)`) are numbers to the tracer; along TraceOptions::dynamic_axes they are found again by
// traces at other sizes, and computed from the input.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mezzo/deploy_call.h"
#include "mezzo/export.h"

namespace mezzo::deploy {

/// The inputs of one call: tensors, tuples, lists and dictionaries of tensors, and whatever else
/// the network takes beside them. Braced lists and vectors convert to it.
class MEZZO_API Examples {
 public:
  /// No inputs.
  Examples() = default;
  /// One value for each argument.
  Examples(std::vector<c10::IValue> values);            // NOLINT(*-explicit-*)
  Examples(const std::vector<at::Tensor>& tensors);     // NOLINT(*-explicit-*)
  Examples(std::initializer_list<c10::IValue> values);  // NOLINT(*-explicit-*)

  /// In the order of the arguments.
  const std::vector<c10::IValue>& values() const { return values_; }

 private:
  std::vector<c10::IValue> values_;
};

/// Axes whose sizes may differ from call to call: by the name of an input, the axis and the axis's
/// own name. Axes of one name have one size. Inputs of C++ networks are called "input_0",
/// "input_1", ..., one a tensor, depth first.
using DynamicAxes = std::map<std::string, std::map<std::int64_t, std::string>>;

/// How a network is traced.
struct TraceOptions {
  /// As in training or as in use? The network's own mode is left as it was.
  bool train = false;
  /// Do parameters and buffers of the result share the network's tensors, or copy them?
  bool share_parameters = true;
  /// Other inputs on which the result must agree with the network.
  std::optional<Examples> check_with = {};
  /// The error that the check accepts, relative to the largest magnitude of an output.
  double check_tolerance = 1e-4;
  /// Sizes that may differ from call to call.
  DynamicAxes dynamic_axes = {};
};

}  // namespace mezzo::deploy

namespace mezzo::deploy::detail {

/// trace() behind its templates.
MEZZO_API torch::jit::Module trace_call(const NetworkCall& call, const Examples& examples,
                                        const TraceOptions& options);

}  // namespace mezzo::deploy::detail

namespace mezzo::deploy {

/// Makes a TorchScript module of a network by running its `forward` on the examples.
/// @param net  a module holder, a std::shared_ptr to a module, or an amp::Model, of which the float
///   masters are taken. Its mode, parameters and buffers are afterwards as they were before.
/// @param examples  the arguments of the call. Tensors, also in tuples, lists and dictionaries,
///   become inputs of the result; numbers, texts and empty optionals are fixed. Trailing arguments
///   with defaults may be left out.
/// @param options  mode, tensors, checks and dynamic axes
/// @return the module in the mode asked for, with the attribute `training`; no gradients were
///   recorded. Results that are lists, maps, pairs or structs come as lists, dictionaries and
///   tuples of tensors.
/// Throws ConfigError for examples that `forward` does not take, UnsupportedError if a dynamic
/// axis cannot be followed, and Error if the check finds a difference; the last two name the
/// module and the operator. One thread at a time for one network.
template <Traceable Net>
torch::jit::Module trace(Net net, const Examples& examples, const TraceOptions& options = {}) {
  return detail::trace_call(detail::network_call(std::move(net)), examples, options);
}

/// Traces another member function of the network: `trace(net, &NetImpl::encode, {x})`.
/// @param net  as above
/// @param method  a pointer to the member function
/// @param examples  as above, but with all arguments
/// @param options  as above
/// @return as above
template <Traceable Net, typename Method>
requires std::is_member_function_pointer_v<Method> torch::jit::Module trace(
    Net net, Method method, const Examples& examples, const TraceOptions& options = {}) {
  return detail::trace_call(detail::network_call(std::move(net), method), examples, options);
}

}  // namespace mezzo::deploy
