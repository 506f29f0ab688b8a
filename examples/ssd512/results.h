// The figures of a training run, and how they stand beside the tutorial's.
#pragma once

#include <mezzo/report.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace examples {

/// A line of the log: averages of the epoch up to this batch, and the speed since the line before.
struct LogLine {
  std::int64_t batch = 0;  ///< from 0
  double samples_per_second = 0, cross_entropy = 0, smooth_l1 = 0;

  /// "INFO:root:[Epoch 0][Batch 49], Speed: 58.105 samples/sec, CrossEntropy=1.190, SmoothL1=0.688"
  std::string text() const;
};

/// One iteration: losses of its batch, which the lines of the log average.
struct IterationLosses {
  double sum = 0, cls = 0, box = 0;
};

struct RunResults {
  std::string dtype;  ///< "float32", "float16", "bfloat16"
  std::vector<LogLine> lines = {};
  std::vector<IterationLosses> losses = {};
  double loss_scale = 1;
  std::int64_t skipped = 0;
};

/// Both runs side by side, the tutorial's figures in the same rows where it has them, and how far
/// low precision is from float.
std::string to_table(const RunResults& full, const RunResults& low);

/// Largest distance of a printed loss of `low` from the one of `full`, as a share of it.
double largest_gap(const RunResults& full, const RunResults& low);

/// {"float32": {"sum_loss": [...], "cls_loss": [...], "box_loss": [...], "log": [...]}, ...}: a
/// number for every iteration. The file appears whole or not at all.
void save_json(const std::vector<RunResults>& runs, const std::filesystem::path& file);

}  // namespace examples
