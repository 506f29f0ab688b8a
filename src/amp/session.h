// The session of one call of `initialize`: everything that its handles share.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "amp/interface_use.h"
#include "amp/kept_float.h"
#include "amp/overflow_ranks.h"
#include "amp/properties.h"
#include "amp/shown_gradients.h"
#include "amp/weight_table.h"
#include "core/torch.h"
#include "mezzo/initialize.h"
#include "parallel/agreement.h"
#include "scaling/loss_scaler.h"

namespace mezzo::amp::detail {

class ModelState;
class OptimizerState;

/// The networks and optimizers that some session holds. An object can be in one session at a time.
class Claims {
 public:
  Claims() = default;
  ~Claims();
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;
  /// Throws ConfigError where one of the objects is claimed already.
  static void check(const Modules& modules, const std::vector<OptimizerRef>& optimizers);
  /// As above, and claims nothing then.
  void claim(const Modules& modules, const std::vector<OptimizerRef>& optimizers);

 private:
  std::vector<const void*> mine_;
};

/// Owns the states behind the handles. When the last handle goes, weights and optimizers are as the
/// caller knew them.
class Session {
 public:
  Session(amp::Options options, Plan plan);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// While the session lives, the old interface (legacy_amp.h) cannot be opened; ConfigError where
  /// it is.
  void exclude_old_interface();

  /// Takes over networks and optimizers that passed all checks.
  void adopt(std::vector<std::shared_ptr<torch::nn::Module>> modules,
             std::vector<OptimizerRef> optimizers);

  const amp::Options& options() const noexcept { return options_; }
  const Plan& plan() const noexcept { return plan_; }
  const KeptFloat& kept_float() const noexcept { return kept_float_; }
  bool enabled() const noexcept { return options_.enabled; }
  WeightTable& weights() noexcept { return weights_; }
  const std::vector<std::unique_ptr<ModelState>>& models() const noexcept { return models_; }
  const std::vector<std::unique_ptr<OptimizerState>>& optimizers() const noexcept {
    return optimizers_;
  }

  /// Are losses multiplied: is a gradient that no scope unscaled another one than the program's?
  bool scales_losses() const noexcept {
    return enabled() && (plan_.scale_rules.dynamic || plan_.first_scale != 1.0);
  }
  /// Does one of the optimizers own the weight?
  bool is_stepped(const at::Tensor& weight) const {
    return stepped_.contains(weight.unsafeGetTensorImpl());
  }

  /// Is the next skipped step to be explained (Options::explain_skips)?
  bool explains_skips() const noexcept { return enabled() && skips_to_explain_ > 0; }
  /// One of them was.
  void note_explained();

  /// Gradients stay scaled until the step (Options::defer_unscale): not where two optimizers own a
  /// parameter, since the first one's step would take the gradient from the second one.
  bool defers_unscale() const;

  std::size_t num_losses() const noexcept { return scalers_.size(); }

  /// The scale of a loss; out of range: ConfigError from `where`.
  scaling::LossScaler& scaler(int loss_id, std::string_view where);

  /// An overflow flag, and whose overflow it was.
  struct Verdict {
    at::Tensor found_inf;
    OverflowRanks ranks;
  };
  /// The ranks that decide together (Options::overflow_group); none where this process decides
  /// alone.
  std::optional<parallel::ProcessGroup> deciding_ranks() const;

  /// From here on weights show their masters' gradients, and a training that passes its masters by
  /// is an error. Not for the older interfaces, whose backward passes are plain ones.
  void follow_program();
  ShownGradients& shown_gradients() noexcept { return shown_gradients_; }

  /// Before a call: what a bare optimizer's step wrote into masters reaches the weights, and what
  /// was written into weights reaches the masters.
  void take_writes();
  /// The first half of it.
  void publish_written_masters();

  /// Brings what was added to the networks since into the level's types.
  void convert_new_weights();

  /// The name that a network gives to a parameter, "parameter" with its shape otherwise.
  std::string name_of(const at::Tensor& weight) const;

  /// Tells it, unless verbosity is 0.
  void say(const std::string& text) const;
  /// As above, once per session and key.
  void say_once(const std::string& key, const std::string& text);

 private:
  void doubt_written_casts();
  void take_last_writes() noexcept;
  void convert(torch::nn::Module& module);
  std::unordered_set<const c10::TensorImpl*> floats_of(const torch::nn::Module& module);
  void watch_low_tensors(const torch::nn::Module& module);
  bool wants_master(const at::Tensor& tensor) const;

  amp::Options options_;
  Plan plan_;
  int skips_to_explain_ = 0;
  KeptFloat kept_float_;
  Claims claims_;
  WeightTable weights_;
  std::deque<scaling::LossScaler> scalers_;
  std::vector<std::unique_ptr<ModelState>> models_;
  std::vector<std::unique_ptr<OptimizerState>> optimizers_;
  std::set<const c10::TensorImpl*> stepped_;  // what some optimizer owns
  std::mutex said_mutex_;
  std::set<std::string> said_;
  std::optional<InterfaceUse> use_;
  std::mutex publishing_;
  ShownGradients shown_gradients_;
  std::optional<parallel::OverflowWatch> watch_;  // while gradients are checked
};

}  // namespace mezzo::amp::detail
