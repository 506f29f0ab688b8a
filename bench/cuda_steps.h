// The cases of `./run bench cuda`; cuda_bench.cpp puts them together.
#pragma once

#include "harness.h"

namespace mezzo::bench {

/// Fused steps (G1-G7 of the list of cases).
void run_cuda_steps(Report&, int repeats, double bandwidth);
/// A training step whose time is its weights' (G8).
void run_cuda_weights(Report&, int repeats, double bandwidth);
/// Norms (G9, G10).
void run_cuda_layers(Report&, int repeats, double bandwidth);
/// Batch norm for several ranks (the kernels of G19).
void run_cuda_batch_norms(Report&, int repeats, double bandwidth);

}  // namespace mezzo::bench
