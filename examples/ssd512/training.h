// The tutorial's first half: SSD-512 trained in float, and in mixed precision.
#pragma once

#include <mezzo/report.h>

#include <cstdint>
#include <string>

#include "ssd512/results.h"

namespace examples {

struct TrainingSettings {
  std::int64_t data_shape = 256, batch_size = 4, iterations = 12;
  std::string device = "cpu", params, data;
  std::int64_t seed = 1;
  // The tutorial's constants.
  double lr = 0.001, wd = 0.0005, momentum = 0.9;
};

/// One epoch of the tutorial, in "float32", or in mixed precision for "float16" and "bfloat16".
/// Writes the tutorial's log to standard output and progress to standard error; adds the run's
/// events to `report`.
RunResults train(const TrainingSettings& settings, const std::string& dtype,
                 mezzo::report::Report& report);

}  // namespace examples
