// Numbers of a graph that LibTorch's executor would replace.
//
// The executor takes every `addmm` without factors apart before a graph's first run and follows
// sizes then. A product whose right factor is a constant gets the sizes of that constant: a batch
// becomes the number of a layer's inputs. That number is written over the -1 of a `view`, is what
// `size` gives, and decides branches. An `addmm` that is written as `linear`, which computes the
// same, is not taken apart, and nothing is followed.
#pragma once

#include <torch/csrc/jit/api/module.h>

namespace mezzo::deploy {

/// Writes each addmm(bias, a, b) of the graph and its blocks as linear(a, b^T, bias), which gives
/// the same bits, and gives the graph constant lists of its own.
void keep_literals(torch::jit::Graph& graph);

/// A copy that shares the tensors, with all methods in one piece and their literals kept. The
/// module itself, where no tensor of the graphs has sizes that the executor could spread.
torch::jit::Module with_literals_kept(const torch::jit::Module& module);

}  // namespace mezzo::deploy
