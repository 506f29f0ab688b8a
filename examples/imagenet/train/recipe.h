// Four ways to train in mixed precision, from the newest to the oldest, in one process or several.
// The loop is the same; recipe.cpp and older_recipes.cpp show what each asks of a program.
#pragma once

#include <mezzo/checkpoint.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>

#include "imagenet/models/network.h"
#include "support/recorder.h"

namespace examples::imagenet {

struct Precision {
  std::string how = "amp";  ///< amp, fp16_optimizer, masters, handle
  std::string opt_level = "O1", loss_scale = "None", keep_batchnorm_fp32 = "None";
  double ema = 0;        ///< decay of averaged weights; 0: none
  bool reducer = false;  ///< instead of DistributedDataParallel
};

/// The program's part of a checkpoint, beside the training's own state.
using Notes = mezzo::amp::Checkpoint;

class Recipe {
 public:
  virtual ~Recipe() = default;

  /// Float logits; with several ranks the backward pass averages gradients.
  virtual at::Tensor forward(const at::Tensor& images) = 0;
  /// The same outside of training, on this rank alone.
  virtual at::Tensor predict(const at::Tensor& images) = 0;

  /// Clears the gradients, and computes those of this loss.
  virtual void backward(const at::Tensor& loss) = 0;

  /// Moves the weights, unless a gradient overflowed.
  virtual void step() = 0;

  /// The loss scale, steps that were skipped, casts so far.
  virtual Counters counters() const = 0;

  /// Bytes of float masters beside the weights.
  virtual std::int64_t master_bytes() const = 0;

  /// The averaged weights, where there are any, are the network's as long as the result lives.
  virtual std::shared_ptr<void> averages_applied() { return nullptr; }

  /// One file, whole or not at all, from which the training goes on to the last bit.
  virtual void save(const std::string& file, const Notes& notes) const = 0;
  virtual Notes load(const std::string& file) = 0;
};

/// The network and the optimizer belong to the recipe while it lives. Throws mezzo::ConfigError for
/// settings that do not fit.
std::unique_ptr<Recipe> make_recipe(const Precision& precision,
                                    const std::shared_ptr<Network>& network,
                                    torch::optim::SGD& sgd);

/// Those before initialize (older_recipes.cpp).
std::unique_ptr<Recipe> make_fp16_optimizer_recipe(const Precision& precision,
                                                   const std::shared_ptr<Network>& network,
                                                   torch::optim::SGD& sgd);
std::unique_ptr<Recipe> make_masters_recipe(const Precision& precision,
                                            const std::shared_ptr<Network>& network,
                                            torch::optim::SGD& sgd);
std::unique_ptr<Recipe> make_handle_recipe(const Precision& precision,
                                           const std::shared_ptr<Network>& network,
                                           torch::optim::SGD& sgd);

}  // namespace examples::imagenet
