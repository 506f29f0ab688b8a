// The state behind a Trainer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gluon/freshness.h"
#include "gluon/mxnet_optimizer.h"
#include "gluon/trainer_scale.h"
#include "mezzo/gluon.h"

namespace mezzo::gluon::detail {

struct TrainerState {
  TrainerState(std::vector<NamedParameters> given, const std::string& optimizer,
               const OptimizerParams& params, TrainerOptions given_options);
  TrainerState(torch::optim::Optimizer& optimizer, TrainerOptions given_options);
  ~TrainerState();
  TrainerState(const TrainerState&) = delete;
  TrainerState& operator=(const TrainerState&) = delete;

  void step(double batch_size, bool ignore_stale_grad);
  void allreduce();
  void update(double batch_size, bool ignore_stale_grad);
  void zero_grad();
  void unscale();

  /// From now on gradients are taken to be multiplied by the loss scale.
  void mark_scaled() { factor = rescale_grad / scaler->scale(); }

  torch::optim::Optimizer& optimizer() const { return own ? *own : *foreign; }
  double learning_rate() const;
  void set_learning_rate(double learning_rate);

  void save(const std::string& path) const;
  void load(const std::string& path);

  TrainerOptions options;
  std::vector<NamedParameters> replicas;
  std::unique_ptr<MxnetOptimizer> own;
  torch::optim::Optimizer* foreign = nullptr;
  std::int64_t foreign_updates = 0;

  double rescale_grad = 1;
  double factor = 1;  // of the gradients as they stand, but for the batch size
  std::optional<TrainerScaler> scaler;
  std::optional<ScaleNumbers> loaded_scale;  // waits for init_trainer
  bool last_step_skipped = false;

 private:
  void start();
  void share_weights();
  void share_weights_with_ranks();
  void check_batch_size(double batch_size) const;
  void refuse_in_capture() const;
  void check_fresh() const;
  std::vector<std::size_t> chosen() const;
  void sum_replicas(const std::vector<std::size_t>& which);
  void sum_ranks(const std::vector<std::size_t>& which);
  void give_sums(const std::vector<std::size_t>& which);
  bool overflows(const std::vector<std::size_t>& which) const;
  void update_foreign(const std::vector<std::size_t>& which, double rescale);
  [[noreturn]] void raise_exhausted(const std::vector<std::size_t>& which) const;
  const at::Tensor& weight(std::size_t i) const { return replicas.front().tensors[i]; }

  std::optional<Freshness> fresh_;
  std::vector<std::size_t> reduced_;  // what the last sum took, until an update
  bool is_reduced_ = false;
  bool ranks_share_weights_ = false;
};

/// The factor that output operators of MXNet give the gradient of `data`: the scale of the only
/// trainer that has one, whose gradients count as scaled from then on if `data` wants any; 1
/// without one. ConfigError for several, and for data that come from parameters of a trainer
/// without a scale while another has one.
double output_scale(const at::Tensor& data);
void enter_live(TrainerState& trainer);
void leave_live(TrainerState& trainer);

/// Is a handle of init alive, on any thread?
bool has_live_handle();

}  // namespace mezzo::gluon::detail
