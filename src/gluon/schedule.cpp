#include "mezzo/gluon_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/raise.h"

namespace mezzo::gluon {
namespace {

constexpr const char* kScheduler = "lr_scheduler";

void check_warmup(const Warmup& warmup) {
  if (!std::isfinite(warmup.base_lr) || warmup.base_lr < warmup.begin_lr) {
    raise<ConfigError>(kScheduler, "base_lr is ", warmup.base_lr, " and warmup_begin_lr ",
                       warmup.begin_lr, "; expected a base_lr of at least warmup_begin_lr");
  }
  if (warmup.steps < 0) {
    raise<ConfigError>(kScheduler, "warmup_steps is ", warmup.steps, "; expected 0 or more");
  }
  if (warmup.mode != "linear" && warmup.mode != "constant") {
    raise<ConfigError>(kScheduler, "warmup_mode is '", warmup.mode,
                       "'; expected 'linear' or 'constant'");
  }
}

void check_factor(double factor) {
  if (!(factor <= 1)) {
    raise<ConfigError>(kScheduler, "factor is ", factor,
                       "; expected at most 1, so that the rate falls");
  }
}

void check_max_update(std::int64_t max_update, const Warmup& warmup) {
  if (max_update < 1 || max_update <= warmup.steps) {
    raise<ConfigError>(kScheduler, "max_update is ", max_update, " with ", warmup.steps,
                       " updates of warm-up; expected more than those, and at least 1");
  }
}

double decayed(double base_lr, double factor, std::int64_t times, double least) {
  if (times <= 0) return base_lr;
  return std::max(base_lr * std::pow(factor, static_cast<double>(times)), least);
}

/// How much of the way behind warm-up is done, 0 to 1.
double progress(std::int64_t num_update, std::int64_t max_update, const Warmup& warmup) {
  return static_cast<double>(std::min(num_update, max_update) - warmup.steps) /
         static_cast<double>(max_update - warmup.steps);
}

template <typename Options>
Warmup warmup_of(Options& options) {
  return {options.base_lr, options.warmup_steps, options.warmup_begin_lr,
          std::move(options.warmup_mode)};
}

}  // namespace

LRScheduler::LRScheduler(Warmup warmup) : warmup_(std::move(warmup)) {
  check_warmup(warmup_);
}

LRScheduler::~LRScheduler() = default;

double LRScheduler::operator()(std::int64_t num_update) const {
  if (num_update >= warmup_.steps) return scheduled(num_update);
  if (warmup_.mode == "constant") return warmup_.begin_lr;
  return warmup_.begin_lr + (warmup_.base_lr - warmup_.begin_lr) * static_cast<double>(num_update) /
                                static_cast<double>(warmup_.steps);
}

void LRScheduler::set_base_lr(double base_lr) {
  Warmup changed = warmup_;
  changed.base_lr = base_lr;
  check_warmup(changed);
  warmup_ = std::move(changed);
}

FactorScheduler::FactorScheduler(FactorSchedulerOptions options)
    : LRScheduler(warmup_of(options)),
      step_(options.step),
      factor_(options.factor),
      stop_factor_lr_(options.stop_factor_lr) {
  if (step_ < 1) raise<ConfigError>(kScheduler, "step is ", step_, "; expected 1 or more");
  check_factor(factor_);
}

double FactorScheduler::scheduled(std::int64_t num_update) const {
  return decayed(base_lr(), factor_, (num_update - 1) / step_, stop_factor_lr_);
}

MultiFactorScheduler::MultiFactorScheduler(MultiFactorSchedulerOptions options)
    : LRScheduler(warmup_of(options)),
      steps_(std::move(options.steps)),
      factor_(options.factor),
      stop_factor_lr_(options.stop_factor_lr) {
  const bool increases =
      std::ranges::adjacent_find(steps_, std::ranges::greater_equal()) == steps_.end();
  if (steps_.empty() || steps_.front() < 1 || !increases) {
    raise<ConfigError>(kScheduler, "steps must be one or more increasing numbers from 1 on");
  }
  check_factor(factor_);
}

double MultiFactorScheduler::scheduled(std::int64_t num_update) const {
  const auto passed = std::ranges::lower_bound(steps_, num_update) - steps_.begin();
  return decayed(base_lr(), factor_, passed, stop_factor_lr_);
}

PolyScheduler::PolyScheduler(PolySchedulerOptions options)
    : LRScheduler(warmup_of(options)),
      max_update_(options.max_update),
      pwr_(options.pwr),
      final_lr_(options.final_lr) {
  check_max_update(max_update_, warmup());
}

double PolyScheduler::scheduled(std::int64_t num_update) const {
  const double left = 1 - progress(num_update, max_update_, warmup());
  return final_lr_ + (base_lr() - final_lr_) * std::pow(left, pwr_);
}

CosineScheduler::CosineScheduler(CosineSchedulerOptions options)
    : LRScheduler(warmup_of(options)),
      max_update_(options.max_update),
      final_lr_(options.final_lr) {
  check_max_update(max_update_, warmup());
}

double CosineScheduler::scheduled(std::int64_t num_update) const {
  const double done = progress(num_update, max_update_, warmup());
  return final_lr_ + (base_lr() - final_lr_) * (1 + std::cos(std::numbers::pi * done)) / 2;
}

}  // namespace mezzo::gluon
