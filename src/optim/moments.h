// The common options of all optimizers with two moments: Adam, LAMB, NovoGrad.
#pragma once

#include <tuple>

#include "optim/checks.h"

namespace mezzo::optim {

/// Throws ConfigError if an option is out of range.
template <typename T>
void check_moments(const T& options) {
  check_not_negative(T::kOptimizer, "lr", options.lr());
  check_not_negative(T::kOptimizer, "eps", options.eps());
  check_beta(T::kOptimizer, "betas[0]", std::get<0>(options.betas()));
  check_beta(T::kOptimizer, "betas[1]", std::get<1>(options.betas()));
  check_not_negative(T::kOptimizer, "weight_decay", options.weight_decay());
  check_not_negative(T::kOptimizer, "max_grad_norm", options.max_grad_norm());
}

/// A recipe with these options; the rest is the optimizer's own.
template <typename Recipe, typename T>
Recipe recipe_with_moments(const T& options) {
  Recipe recipe;
  recipe.lr = options.lr();
  std::tie(recipe.beta1, recipe.beta2) = options.betas();
  recipe.eps = options.eps();
  recipe.weight_decay = options.weight_decay();
  recipe.max_grad_norm = options.max_grad_norm();
  recipe.bias_correction = options.bias_correction();
  return recipe;
}

}  // namespace mezzo::optim
