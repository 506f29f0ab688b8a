// A graph of MXNet and its parameters, held against each other.
#pragma once

#include <string>
#include <vector>

#include "mezzo/convert_mxnet.h"

namespace mezzo::convert::mxnet {

/// The names of the two in messages; empty where they did not come from files.
struct Origins {
  std::string graph = {}, params = {};
};

/// Throws Error that names files, node and parameter: for attributes that MXNet cannot read, inputs
/// that an operator lacks or does not have, two variables of one name, and parameters that are
/// missing, or whose shape or type their operator does not take. Says nothing about operators that
/// are not known.
void check_checkpoint(const Symbol& symbol, const NDArrays& args, const NDArrays& auxs,
                      const Origins& origins = {});

/// Sends a message about operators that nobody knows, attributes that are nearly one of their
/// operator's, and parameters that no graph reads.
void tell_of_oddities(const std::vector<const Symbol*>& graphs, const NDArrays& args,
                      const NDArrays& auxs);

}  // namespace mezzo::convert::mxnet
