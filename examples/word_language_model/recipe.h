// Three ways to train in half precision, from the newest to the oldest. The loop is the same;
// recipe.cpp shows what each one asks of a program.
#pragma once

#include <torch/optim/sgd.h>
#include <torch/ordered_dict.h>

#include <memory>
#include <string>
#include <utility>

#include "word_language_model/language_model.h"

namespace examples {

struct RecipeSettings {
  std::string how = "amp";          ///< amp, fp16_optimizer, masters
  std::string opt_level = "O1";     ///< of amp
  std::string loss_scale = "None";  ///< dynamic, or a number; None: the recipe's own
};

class Recipe {
 public:
  virtual ~Recipe() = default;

  /// Float logits, and the memory after these words.
  virtual std::pair<at::Tensor, Memory> forward(const at::Tensor& words, const Memory& memory) = 0;

  virtual void zero_grad() = 0;
  virtual void backward(const at::Tensor& loss) = 0;
  virtual void clip(double max_norm) = 0;

  /// Moves the weights, unless a gradient overflowed.
  virtual void step() = 0;

  virtual double loss_scale() const = 0;
  virtual std::int64_t skipped_steps() const = 0;

  /// The weights as float values under the network's names.
  virtual torch::OrderedDict<std::string, at::Tensor> weights() const = 0;
};

/// The network and the optimizer belong to the recipe while it lives. Throws mezzo::ConfigError for
/// settings that do not fit.
std::unique_ptr<Recipe> make_recipe(const RecipeSettings& settings, LanguageModel net,
                                    torch::optim::SGD& sgd);

}  // namespace examples
