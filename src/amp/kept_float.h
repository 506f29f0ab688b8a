// The tensors that Options::keep_float names.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <regex>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/torch.h"

namespace mezzo::amp::detail {

/// A name of a parameter, buffer, module or module type: exact, glob (* and ?), or /expression/.
class FloatPattern {
 public:
  /// Throws ConfigError for an empty pattern, and for an expression that is none.
  explicit FloatPattern(std::string text);
  const std::string& text() const noexcept { return text_; }
  bool matches(const std::string& name) const;
  /// "LayerNorm", "LayerNormImpl" and "torch::nn::LayerNorm" name one type.
  bool matches_type(const torch::nn::Module& module) const;

 private:
  std::string text_;
  std::shared_ptr<const std::regex> expression_;  // null: exact
};

/// The patterns of one `initialize`.
class KeptFloat {
 public:
  explicit KeptFloat(const std::vector<std::string>& patterns);

  /// Throws ConfigError for a pattern that matches nothing in the networks.
  void check(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) const;

  /// The parameters and buffers of a network that the patterns name, alone or by their modules.
  std::unordered_set<const c10::TensorImpl*> in(const torch::nn::Module& root) const;

 private:
  std::vector<FloatPattern> patterns_;
};

}  // namespace mezzo::amp::detail
