// A trainer's loss scale: MXNet's state machine, with and without its step of lag.
#pragma once

#include "mezzo/gluon.h"
#include "scaling/scale_state.h"

namespace mezzo::gluon {

/// The numbers of a scale. `next` is what has been decided, `scale` what losses are multiplied by:
/// the same unless the timing is MXNet's.
struct ScaleNumbers {
  double scale = 1, next = 1;
  std::int64_t unskipped = 0, stuck = 0;
  friend bool operator==(const ScaleNumbers&, const ScaleNumbers&) = default;
};

/// One trainer's scale.
class TrainerScaler {
 public:
  /// Throws ConfigError for numbers that are no scale.
  explicit TrainerScaler(const TrainerScale& options);

  double scale() const { return numbers_.scale; }
  const ScaleNumbers& numbers() const { return numbers_; }
  void set_numbers(const ScaleNumbers& numbers);

  /// Takes the outcome of a step, and says in MXNet's words where the scale goes.
  void advance(bool overflow);

  /// Has it been at its floor for as long as is accepted?
  bool exhausted() const;

 private:
  scaling::ScaleRules rules_;
  bool lags_;
  ScaleNumbers numbers_;
};

}  // namespace mezzo::gluon
