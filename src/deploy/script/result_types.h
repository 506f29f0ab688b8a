// The types of an operator's results, from those of its operands: a table by the operator's name.
#pragma once

#include <functional>
#include <vector>

#include "deploy/script/facts.h"
#include "deploy/script/names.h"

namespace mezzo::deploy::script {

/// Facts about the results of an operator that has no blocks and is not of TorchScript itself.
/// @param facts  of the inputs, as the operator gets them
std::vector<Fact> result_facts(const torch::jit::Node& node, const std::vector<Fact>& facts,
                               at::ScalarType low);

/// Gives the operator the memory or the values of its first operand in another shape, and nothing
/// else: then a cast of the result is a cast of the operand.
bool is_view(const torch::jit::Node& node);

/// Does the operator read sizes and the like alone?
bool reads_no_values(const torch::jit::Node& node);

}  // namespace mezzo::deploy::script
