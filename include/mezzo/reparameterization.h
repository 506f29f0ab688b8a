// Weights that are computed from other parameters, such as weight normalisation, w = g * v / |v|.
//
//   mezzo::apply_weight_norm(*net);              // "weight" becomes "weight_g" and "weight_v"
//   torch::optim::SGD sgd(net->parameters(), 0.1);
//   auto [model, optimizer] = mezzo::amp::initialize(net, sgd, {.opt_level = "O2"});
//
// Apply before the optimizer is made and before `initialize`. The new parameters are trained, have
// masters, and are what checkpoints hold. Modules of C++ have no hooks before forward: a Model
// (model.h) computes the weights at the start of each call, and a plain module does behind the
// handle that reparameterized() gives, or after recompute_weights(). A weight keeps its tensor, so
// that the module's member and the lists of recurrent layers see the computed value, with its
// history. Backward passes of backward passes work. Modules with such weights cannot be
// cloned; move recurrent ones to another device or type before.
#pragma once

#include <torch/nn/module.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "mezzo/export.h"

namespace mezzo {

/// How a weight is made of other parameters. The base of one's own; it needs a default constructor.
/// One object serves one weight.
class MEZZO_API Reparameterization {
 public:
  /// By what is appended to the weight's name: {"_g", g}, {"_v", v}.
  using Parameters = torch::OrderedDict<std::string, at::Tensor>;

  virtual ~Reparameterization();
  /// The parameters that take the weight's place, so that compute_weight() gives the weight again.
  virtual Parameters reparameterize(const at::Tensor& weight, std::int64_t dim) = 0;
  /// The weight, differentiably. Called before each forward pass, with parameters of the type that
  /// the level gives them; the result gets the type of the last one.
  virtual at::Tensor compute_weight(const Parameters& parameters, std::int64_t dim) = 0;
};

/// w = g * v / |v|, with a norm over all dimensions but `dim`: Salimans and Kingma 2016. Norms are
/// taken in float, so that they are safe in float16; a v of zeros gives zeros.
class MEZZO_API WeightNorm : public Reparameterization {
 public:
  Parameters reparameterize(const at::Tensor& weight, std::int64_t dim) override;
  at::Tensor compute_weight(const Parameters& parameters, std::int64_t dim) override;
};

namespace detail {

/// Is a reparameterization of the kind that is looked for?
using IsKind = bool (*)(const Reparameterization&);
using MakeRule = std::unique_ptr<Reparameterization> (*)();

MEZZO_API void apply_rule(torch::nn::Module& module, MakeRule make, const std::string& name,
                          std::int64_t dim, bool hook_child);
MEZZO_API void remove_rules(torch::nn::Module& module, IsKind is_kind, const std::string& name,
                            bool remove_all);

}  // namespace detail

/// Replaces a weight by the parameters of R, of the same module.
/// @param module  the root of a tree
/// @param name  of a parameter of the tree, such as "encoder.0.weight"; empty: of all. Those with
///   less than two dimensions and those of embeddings are left alone.
/// @param dim  handed to R; negative ones count from the end
/// @param hook_child  the weight is remembered by its own module, where removal by that module
/// finds
///   it; otherwise by `module`
/// @throws ConfigError if there is no parameter of this name, or the weight is computed already
template <class R>
void apply_reparameterization(torch::nn::Module& module, const std::string& name = "",
                              std::int64_t dim = 0, bool hook_child = true) {
  static_assert(std::is_base_of_v<Reparameterization, R>,
                "R derives from mezzo::Reparameterization");
  detail::apply_rule(
      module, []() -> std::unique_ptr<Reparameterization> { return std::make_unique<R>(); }, name,
      dim, hook_child);
}

/// Makes weights parameters again, with the values that they have now.
/// @param module  the root of a tree
/// @param name  of a weight that `module` remembers; empty: all in the tree
/// @param remove_all  without a name: only what `module` itself remembers
/// @throws ConfigError if `module` remembers no weight of this name
template <class R = Reparameterization>
void remove_reparameterization(torch::nn::Module& module, const std::string& name = "",
                               bool remove_all = false) {
  detail::remove_rules(
      module,
      [](const Reparameterization& rule) { return dynamic_cast<const R*>(&rule) != nullptr; }, name,
      remove_all);
}

/// apply_reparameterization with WeightNorm.
MEZZO_API void apply_weight_norm(torch::nn::Module& module, const std::string& name = "",
                                 std::int64_t dim = 0, bool hook_child = true);
/// remove_reparameterization of WeightNorm.
MEZZO_API void remove_weight_norm(torch::nn::Module& module, const std::string& name = "");

/// Computes the weights of the tree anew, recorded by autograd if gradients are.
MEZZO_API void recompute_weights(const torch::nn::Module& module);

/// A plain module whose weights are computed before each call.
template <class Net>
class Reparameterized {
 public:
  /// Shares the module.
  explicit Reparameterized(Net net) : net_(std::move(net)) {}

  /// The module's forward.
  template <typename... Args>
  auto operator()(Args&&... args) {
    recompute_weights(*net_);
    return net_->forward(std::forward<Args>(args)...);
  }

  /// The module.
  Net& module() noexcept { return net_; }

 private:
  Net net_;
};

/// A handle for a module holder or a std::shared_ptr to a module.
template <class Net>
Reparameterized<Net> reparameterized(Net net) {
  return Reparameterized<Net>(std::move(net));
}

}  // namespace mezzo
