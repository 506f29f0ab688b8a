// Learning-rate schedules as MXNet's mx.lr_scheduler has them, for gluon::Trainer.
//
// A schedule is a pure function of the number of updates, so that calling it twice, out of order or
// after loading gives the same rate. MXNet's objects change themselves and do not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mezzo/export.h"

namespace mezzo::gluon {

/// The rate at the beginning of a schedule: `warmup_steps` updates on the way to the base rate.
struct Warmup {
  double base_lr = 0.01;
  std::int64_t steps = 0;
  double begin_lr = 0;
  std::string mode = "linear";  ///< or "constant": `begin_lr` until the warm-up is over
};

/// A learning rate for every number of updates. Immutable but for the base rate, which a Trainer
/// with an explicit "learning_rate" replaces.
class MEZZO_API LRScheduler {
 public:
  /// Throws ConfigError for a base rate below `begin_lr`, negative steps or an unknown mode.
  explicit LRScheduler(Warmup warmup = {});
  virtual ~LRScheduler();

  /// The rate of update number `num_update`, which counts from 1: the largest number of updates
  /// that a parameter has had, this one included.
  double operator()(std::int64_t num_update) const;

  /// The rate that warm-up leads to and that the schedule starts from.
  double base_lr() const noexcept { return warmup_.base_lr; }
  /// Throws ConfigError if warm-up would begin above it.
  void set_base_lr(double base_lr);

 protected:
  LRScheduler(const LRScheduler&) = default;
  LRScheduler& operator=(const LRScheduler&) = default;

  /// The rate once warm-up is over.
  virtual double scheduled(std::int64_t num_update) const = 0;

  /// The warm-up that the schedule was made with.
  const Warmup& warmup() const noexcept { return warmup_; }

 private:
  Warmup warmup_;
};

/// The arguments of FactorScheduler.
struct FactorSchedulerOptions {
  std::int64_t step = 1;
  double factor = 1;
  double stop_factor_lr = 1e-8;
  double base_lr = 0.01;
  std::int64_t warmup_steps = 0;
  double warmup_begin_lr = 0;
  std::string warmup_mode = "linear";
};

/// Multiplies the rate by `factor` after every `step` updates, down to `stop_factor_lr`.
class MEZZO_API FactorScheduler : public LRScheduler {
 public:
  /// Throws ConfigError for a step below 1 or a factor above 1.
  explicit FactorScheduler(FactorSchedulerOptions options);

 protected:
  double scheduled(std::int64_t num_update) const override;

 private:
  std::int64_t step_;
  double factor_, stop_factor_lr_;
};

/// The arguments of MultiFactorScheduler.
struct MultiFactorSchedulerOptions {
  std::vector<std::int64_t> steps = {};
  double factor = 1;
  double stop_factor_lr = 0;
  double base_lr = 0.01;
  std::int64_t warmup_steps = 0;
  double warmup_begin_lr = 0;
  std::string warmup_mode = "linear";
};

/// Multiplies the rate by `factor` after each of the updates in `steps`, down to `stop_factor_lr`.
class MEZZO_API MultiFactorScheduler : public LRScheduler {
 public:
  /// Throws ConfigError unless `steps` are one or more increasing numbers from 1 on, and for a
  /// factor above 1.
  explicit MultiFactorScheduler(MultiFactorSchedulerOptions options);

 protected:
  double scheduled(std::int64_t num_update) const override;

 private:
  std::vector<std::int64_t> steps_;
  double factor_, stop_factor_lr_;
};

/// The arguments of PolyScheduler.
struct PolySchedulerOptions {
  std::int64_t max_update = 1;
  double base_lr = 0.01;
  double pwr = 2;
  double final_lr = 0;
  std::int64_t warmup_steps = 0;
  double warmup_begin_lr = 0;
  std::string warmup_mode = "linear";
};

/// From the base rate to `final_lr` at `max_update` by a polynomial of power `pwr`, warm-up
/// included in the count; `final_lr` from then on.
class MEZZO_API PolyScheduler : public LRScheduler {
 public:
  /// Throws ConfigError unless `max_update` is above `warmup_steps`.
  explicit PolyScheduler(PolySchedulerOptions options);

 protected:
  double scheduled(std::int64_t num_update) const override;

 private:
  std::int64_t max_update_;
  double pwr_, final_lr_;
};

/// The arguments of CosineScheduler.
struct CosineSchedulerOptions {
  std::int64_t max_update = 1;
  double base_lr = 0.01;
  double final_lr = 0;
  std::int64_t warmup_steps = 0;
  double warmup_begin_lr = 0;
  std::string warmup_mode = "linear";
};

/// From the base rate to `final_lr` at `max_update` by half a cosine, warm-up included in the
/// count; `final_lr` from then on.
class MEZZO_API CosineScheduler : public LRScheduler {
 public:
  /// Throws ConfigError unless `max_update` is above `warmup_steps`.
  explicit CosineScheduler(CosineSchedulerOptions options);

 protected:
  double scheduled(std::int64_t num_update) const override;

 private:
  std::int64_t max_update_;
  double final_lr_;
};

}  // namespace mezzo::gluon
