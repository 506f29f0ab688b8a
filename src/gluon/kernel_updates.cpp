#include "gluon/kernel_updates.h"

#include <cmath>

#include "gluon/operator_updates.h"
#include "kernels/recipes.h"

namespace mezzo::gluon {
namespace {

/// Adam as the kernels compute it, given MXNet's numbers: the bias correction is in the rate, so
/// that epsilon stands beside the uncorrected root.
kernels::AdamScalars<double> adam_scalars(const Hyper& hyper, const ParameterNumbers& now,
                                          bool decoupled, bool corrects) {
  const auto t = static_cast<double>(now.count);
  const double correction =
      corrects ? std::sqrt(1 - std::pow(hyper.beta2, t)) / (1 - std::pow(hyper.beta1, t)) : 1.0;
  kernels::AdamScalars<double> scalars{};
  scalars.beta1 = hyper.beta1;
  scalars.one_minus_beta1 = rest_of(hyper.beta1);
  scalars.beta2 = hyper.beta2;
  scalars.one_minus_beta2 = rest_of(hyper.beta2);
  scalars.step_size = now.lr * correction;
  scalars.inv_sqrt_bias2 = 1;
  scalars.eps = hyper.epsilon;
  scalars.keep = decoupled ? 1 - now.lr * correction * now.wd : 1.0;
  scalars.l2 = decoupled ? 0.0 : now.wd;
  scalars.grad_scale = now.rescale;
  return scalars;
}

}  // namespace

void sgd_by_kernels(const Hyper& hyper, std::span<const ParameterNumbers> numbers,
                    kernels::Lists& lists, std::span<const kernels::StepRow> rows) {
  std::vector<kernels::SgdScalars<double>> table;
  for (const ParameterNumbers& now : numbers) {
    kernels::SgdScalars<double> scalars{};
    // MXNet's rate is inside the momentum: the kernel's factor of the gradient there. The decay
    // is part of that gradient.
    scalars.lr = hyper.momentum != 0 ? 1.0 : now.lr;
    scalars.momentum = hyper.momentum;
    scalars.one_minus_dampening = now.lr;
    scalars.weight_decay = now.wd;
    scalars.grad_scale = now.rescale;
    table.push_back(scalars);
  }
  lists.sgd(rows, table, {});
}

void adam_by_kernels(const Hyper& hyper, std::span<const ParameterNumbers> numbers,
                     kernels::Lists& lists, std::span<const kernels::StepRow> rows) {
  std::vector<kernels::AdamScalars<double>> table;
  for (const ParameterNumbers& now : numbers) {
    table.push_back(adam_scalars(hyper, now, /*decoupled=*/false, /*corrects=*/true));
  }
  lists.adam(rows, table, {});
}

void adamw_by_kernels(const Hyper& hyper, std::span<const ParameterNumbers> numbers,
                      kernels::Lists& lists, std::span<const kernels::StepRow> rows) {
  std::vector<kernels::AdamScalars<double>> table;
  for (const ParameterNumbers& now : numbers) {
    table.push_back(adam_scalars(hyper, now, /*decoupled=*/true, hyper.correct_bias != 0));
  }
  lists.adam(rows, table, {});
}

void lamb_by_kernels(const Hyper& hyper, std::span<const ParameterNumbers> numbers,
                     kernels::Lists& lists, std::span<const kernels::StepRow> rows) {
  std::vector<kernels::LambScalars<double>> table;
  for (const ParameterNumbers& now : numbers) {
    kernels::LambRecipe recipe;
    recipe.lr = now.lr;
    recipe.beta1 = hyper.beta1;
    recipe.beta2 = hyper.beta2;
    recipe.eps = hyper.epsilon;
    recipe.weight_decay = now.wd;
    recipe.bias_correction = hyper.bias_correction != 0;
    table.push_back(kernels::scalars_at(recipe, now.count, now.rescale));
    table.back().beta3 = rest_of(hyper.beta1);
    table.back().one_minus_beta2 = rest_of(hyper.beta2);
  }
  lists.lamb(rows, std::span(table), {},
             [&](std::size_t i, double weight_norm, double update_norm) {
               return numbers[i].lr * lamb_ratio(hyper, weight_norm, update_norm);
             });
}

}  // namespace mezzo::gluon
