// A weight of a module that is computed from other parameters of it.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "core/torch.h"
#include "mezzo/reparameterization.h"

namespace mezzo::reparameterization {

/// A child of the module that remembers the weight. It has no parameters and is in no file.
class ComputedWeight : public torch::nn::Module {
 public:
  /// Replaces the parameter `name` of `owner` by those of the rule.
  /// @param path  the weight's name in the module that remembers it
  ComputedWeight(torch::nn::Module& owner, std::string name, std::string path, std::int64_t dim,
                 std::unique_ptr<Reparameterization> rule);

  ~ComputedWeight() override;
  ComputedWeight(const ComputedWeight&) = delete;
  ComputedWeight& operator=(const ComputedWeight&) = delete;

  /// Is there one in the process? Most programs have none, and need not walk their trees.
  static bool any() noexcept;

  const std::string& path() const noexcept { return path_; }
  const Reparameterization& rule() const noexcept { return *rule_; }
  /// The parameters that it is computed from.
  std::vector<at::Tensor> made() const { return parameters_of_rule_.values(); }
  /// How the child is called.
  std::string key() const;

  /// Gives the weight its value, with the history of its computation.
  void compute();
  /// Makes the weight a parameter again. The child can be dropped then.
  void restore();

  bool is_serializable() const override { return false; }

 private:
  torch::nn::Module& owner_;
  std::string name_;
  std::string path_;
  std::int64_t dim_;
  std::unique_ptr<Reparameterization> rule_;
  Reparameterization::Parameters parameters_of_rule_;
  at::Tensor weight_;
};

/// All of a tree.
std::vector<std::shared_ptr<ComputedWeight>> computed_weights(const torch::nn::Module& module);

}  // namespace mezzo::reparameterization
