#include "imagenet/train/rate.h"

#include <algorithm>
#include <cmath>

namespace examples::imagenet {

double Rate::at(std::int64_t epoch, std::int64_t step, std::int64_t steps_per_epoch,
                std::int64_t images_per_step) const {
  constexpr double kBaseImages = 256;
  std::int64_t factors = epoch / decay_epochs;
  if (extra_decay_epoch > 0 && epoch >= extra_decay_epoch) ++factors;
  const double full = base * static_cast<double>(images_per_step) / kBaseImages *
                      std::pow(0.1, static_cast<double>(factors));
  if (epoch >= warmup_epochs) return full;
  const double done = static_cast<double>(epoch * steps_per_epoch + step + 1);
  return full * std::min(1., done / static_cast<double>(warmup_epochs * steps_per_epoch));
}

}  // namespace examples::imagenet
