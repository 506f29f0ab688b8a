// The outcome of a step.
#pragma once

#include <memory>
#include <string>

#include "mezzo/export.h"

namespace mezzo {
namespace amp::detail {
struct StepRecord;
}

namespace amp {

/// The outcome of `Optimizer::step` or `GradScaler::step`. If the decision was made on a device,
/// it is read when it is asked for, and only then; later steps do not change it. Copies share.
class MEZZO_API StepResult {
 public:
  explicit StepResult(std::shared_ptr<const detail::StepRecord> record);

  /// The optimizer moved the weights.
  bool applied() const;

  /// A gradient was not finite, and nothing was changed.
  bool skipped() const { return !applied() && !empty(); }

  /// No parameter had a gradient, as where a batch had no loss: there was nothing to do.
  bool empty() const;

  /// The scale of the gradients that were stepped, or of the loss that overflowed, and what it is
  /// after the step.
  double scale_before() const;
  double scale_after() const;

  /// Why the step was not made, in plain words; "" where it was applied.
  std::string reason() const;

 private:
  std::shared_ptr<const detail::StepRecord> record_;
};

}  // namespace amp
}  // namespace mezzo
