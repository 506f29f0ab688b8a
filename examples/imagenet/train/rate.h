// The learning rate of a step.
#pragma once

#include <cstdint>

namespace examples::imagenet {

/// Rises over the first epochs, then falls in steps. The defaults are those of Apex's example.
struct Rate {
  double base = 0.1;           ///< for 256 images a step
  int warmup_epochs = 5;       ///< the rate rises from 0 with every step of them
  int decay_epochs = 30;       ///< it is divided by 10 after each so many,
  int extra_decay_epoch = 80;  ///< and once more from this one on; 0: not

  /// The rate of a step (both from 0) at so many images a step over all ranks.
  double at(std::int64_t epoch, std::int64_t step, std::int64_t steps_per_epoch,
            std::int64_t images_per_step) const;
};

}  // namespace examples::imagenet
