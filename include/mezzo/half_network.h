// Half networks made by hand: conversions in place, and callables that cast what goes in. Part of
// fp16_utils.h.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/serialize/archive.h>

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "mezzo/containers.h"
#include "mezzo/export.h"
#include "mezzo/model.h"

namespace mezzo::casting {
class Scope;
}

namespace mezzo::fp16_utils {

/// Batch norms of any kind, with or without parameters, become float, statistics included.
MEZZO_API void BN_convert_float(torch::nn::Module& module);

/// Parameters, their gradients and the floating buffers of this module, not of its children, become
/// `type` in place. Throws ConfigError if that is no floating type.
MEZZO_API void convert_module(torch::nn::Module& module, at::ScalarType type);

/// As above, for a whole network, except that every batch norm stays or becomes float. Recurrent
/// layers lay their weights out again.
MEZZO_API void convert_network(torch::nn::Module& module, at::ScalarType type);

/// A module that casts its input to half and leaves integers alone: the first of a Sequential.
struct MEZZO_API tofp16 : torch::nn::Cloneable<tofp16> {
  /// Nothing: it has no parameters. For `clone`.
  void reset() override;

  /// The input in half, or as it came.
  at::Tensor forward(const at::Tensor& input);
  at::Tensor operator()(const at::Tensor& input) { return forward(input); }
};

namespace detail {

/// While it lives, matrix operators of half tensors compute as they do in a Model at O2.
class MEZZO_API HalfScope {
 public:
  HalfScope();
  ~HalfScope();
  HalfScope(const HalfScope&) = delete;
  HalfScope& operator=(const HalfScope&) = delete;

 private:
  std::unique_ptr<casting::Scope> scope_;
};

/// Makes the network half, but for its batch norms; ConfigError for an empty handle.
MEZZO_API void make_half(const std::shared_ptr<torch::nn::Module>& module);

/// The archive's values, cast to the types of the network's tensors. Throws Error, and changes
/// nothing, for a file of another network.
MEZZO_API void load_values(torch::serialize::InputArchive& archive, torch::nn::Module& module);

/// A half network, called with its floating arguments cast to half, whatever holds them. Results
/// leave as they come. A cheap handle: copies share.
template <typename Net>
class HalfCaller {
 public:
  explicit HalfCaller(Net net)
      : net_(std::move(net)), module_(mezzo::amp::detail::module_of(net_)) {
    make_half(module_);
  }

  /// The network's forward; its default arguments work.
  template <typename... Args>
  auto operator()(Args&&... args) const {
    const HalfScope scope;
    const mezzo::amp::TensorCast to_half{at::kHalf, /*doubles=*/true};
    std::tuple<mezzo::amp::detail::CastArgument<Args>...> cast{
        mezzo::amp::detail::CastArgument<Args>(std::forward<Args>(args), to_half)...};
    return std::apply([this](auto&... argument) { return (*net_).forward(argument.get()...); },
                      cast);
  }

  /// As above.
  template <typename... Args>
  auto forward(Args&&... args) const {
    return (*this)(std::forward<Args>(args)...);
  }

  /// `half->forward(x)`, `half->train()`: the wrapper's own members.
  const HalfCaller* operator->() const noexcept { return this; }

  /// The bare half network: calls through it cast nothing.
  Net& module() const noexcept { return net_; }

  /// As of torch::nn::Module.
  std::vector<at::Tensor> parameters(bool recurse = true) const {
    return module_->parameters(recurse);
  }
  torch::OrderedDict<std::string, at::Tensor> named_parameters(bool recurse = true) const {
    return module_->named_parameters(recurse);
  }
  std::vector<at::Tensor> buffers(bool recurse = true) const { return module_->buffers(recurse); }
  torch::OrderedDict<std::string, at::Tensor> named_buffers(bool recurse = true) const {
    return module_->named_buffers(recurse);
  }
  void train(bool on = true) const { module_->train(on); }
  void eval() const { module_->eval(); }
  bool is_training() const { return module_->is_training(); }
  void zero_grad(bool set_to_none = true) const { module_->zero_grad(set_to_none); }
  void to(at::Device device, bool non_blocking = false) const { module_->to(device, non_blocking); }

  /// torch::save(half, path) writes the network as it is; torch::load(half, path) reads that, and
  /// files of the float network.
  friend torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                     const HalfCaller& half) {
    half.module_->save(archive);
    return archive;
  }
  friend torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                    const HalfCaller& half) {
    load_values(archive, *half.module_);
    return archive;
  }

 private:
  mutable Net net_;
  std::shared_ptr<torch::nn::Module> module_;
};

}  // namespace detail

/// The result of network_to_half.
template <class Net>
class HalfNetwork : public detail::HalfCaller<Net> {
 public:
  using detail::HalfCaller<Net>::HalfCaller;
};

/// Makes a network half in place, batch norms float, and returns it as a callable that casts its
/// floating inputs to half. `net` is a module holder or a shared_ptr to a module.
template <class Net>
HalfNetwork<Net> network_to_half(Net net) {
  return HalfNetwork<Net>(std::move(net));
}

/// network_to_half as a class: `FP16Model model(net)` converts `net` and takes inputs of any
/// floating type.
template <class Net>
class FP16Model : public detail::HalfCaller<Net> {
 public:
  explicit FP16Model(Net net) : detail::HalfCaller<Net>(std::move(net)) {}
};

}  // namespace mezzo::fp16_utils
