// The loop over time for cells and wishes that no kernel of LibTorch covers.
#pragma once

#include <cstdint>
#include <vector>

#include "rnn/definition.h"

namespace mezzo::rnn::detail {

/// Sequences as the loop takes them: the rows of all steps, one step after the other.
struct Steps {
  at::Tensor rows;                        // [rows, features]
  std::vector<std::int64_t> batch_sizes;  // rows of each step; never more than in the step before
};

struct LoopCall {
  const Definition& definition;
  const Options& options;
  const std::vector<LayerWeights>& weights;  // by layer, then direction
  const Steps& x;
  const Hidden& hidden;
  bool collect_hidden;
  bool training;
};

struct LoopResult {
  at::Tensor output;  // [rows, directions * output_size]
  Hidden last;        // [layers * directions, batch, size] each
  Hidden collected;   // [rows, layers * directions, size] each; empty if not asked for
};

/// Runs the layers one after the other, with their casts made before the first step.
LoopResult run_time_loop(const LoopCall& call);

}  // namespace mezzo::rnn::detail
