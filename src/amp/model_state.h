// The state behind a Model handle.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "amp/session.h"
#include "amp/snapshot.h"
#include "amp/stray_training.h"
#include "mezzo/policy.h"

namespace mezzo::amp::detail {

struct LastCall;

/// A network of a session.
class ModelState {
 public:
  ModelState(Session& session, std::shared_ptr<torch::nn::Module> module);
  ~ModelState();
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;

  Session& session() const noexcept { return session_; }
  torch::nn::Module& module() const noexcept { return *module_; }

  /// Before each training call it is taken, with the batch norms of this network in it: that of
  /// an optimizer that owns some of the parameters.
  void snapshot_before_training(Snapshot& snapshot);

  /// Before each call: values written from outside are taken in, and what a skipped step gives back
  /// is remembered.
  void before_call();

  /// The types of arguments and results.
  amp::TensorCast inputs() const;
  amp::TensorCast outputs() const;

  /// At a level that casts operators: the level's policy, with what this network's modules need.
  const std::optional<Policy>& operator_policy() const noexcept {
    return trial_ != nullptr ? trial_->operator_policy : operator_policy_;
  }

  /// At a whole-model level: the policy of the network's low type, whose matrix operators may need
  /// emulation. Nothing if no parameter is low.
  const std::optional<Policy>& low_policy() const noexcept {
    return trial_ != nullptr ? trial_->low_policy : low_policy_;
  }

  /// How calls run while a step is tried out (src/insight), in place of the level's way. Such calls
  /// leave no trace here: no snapshot is taken, no written value taken in, and none is counted.
  struct Trial {
    std::optional<Policy> operator_policy;
    std::optional<Policy> low_policy;
    amp::TensorCast inputs;
  };
  /// Null: the level's way again.
  void set_trial(const Trial* trial) noexcept { trial_ = trial; }

  /// From here on an optimizer that trains low weights without masters is noticed.
  void watch_stray_training() { stray_training_.watch(session_, *module_); }
  void note_load() { stray_training_.note_load(); }

  /// Is the next call kept, so that a skipped step can be explained? Not in trials.
  bool keeps_calls() const;
  /// The call that was just made, in place of the one before: how to make it again, and the tensors
  /// in its results, whose gradients are kept as they come. Calls may come from several threads.
  void keep_call(std::function<std::vector<at::Tensor>()> again,
                 const std::vector<at::Tensor>& results);
  /// Null where the last call was not kept.
  std::shared_ptr<const LastCall> last_call() const;
  void forget_call();

  /// Calls made through the handle so far.
  std::int64_t calls() const noexcept { return calls_; }

 private:
  void keep_scores_in_float();
  bool begins_in_float() const;

  Session& session_;
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<Snapshot*> snapshots_;
  std::optional<Policy> operator_policy_;
  std::optional<Policy> low_policy_;
  bool float_inputs_ = false;  // keep_float names the first parameter, or every low one
  const Trial* trial_ = nullptr;
  std::int64_t calls_ = 0;
  StrayTraining stray_training_;

  mutable std::mutex last_call_mutex_;
  std::shared_ptr<const LastCall> last_call_;
};

}  // namespace mezzo::amp::detail
