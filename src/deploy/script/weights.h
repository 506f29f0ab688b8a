// Which weights only low operators read, and what becomes of these.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "deploy/script/method.h"

namespace mezzo::deploy::script {

/// The paths of the weights that every reader, in all methods, wants low. Weights that share
/// memory are low together or not at all. Those that something writes are none of them.
std::set<std::string> low_weights(const std::vector<ScriptMethod>& methods,
                                  const torch::jit::Module& module, at::ScalarType low);

/// Stores these weights in the low type. Returns how many tensors that changed.
std::int64_t store_low(const std::set<std::string>& weights, const torch::jit::Module& module,
                       at::ScalarType low);

/// Casts these weights where the method begins, once each, and lets all readers read that. Returns
/// the casts' values.
std::vector<torch::jit::Value*> cast_weights(ScriptMethod& method,
                                             const std::set<std::string>& weights,
                                             const torch::jit::Module& module, at::ScalarType low);

/// The facts of the values that read these weights, once they are low.
std::unordered_map<const torch::jit::Value*, Fact> facts_of_weights(
    const ScriptMethod& method, const std::set<std::string>& weights,
    const torch::jit::Module& module);

/// Inserts aten::to before `where`.
torch::jit::Value* insert_to(torch::jit::Value* value, at::ScalarType type,
                             torch::jit::Node* where);

}  // namespace mezzo::deploy::script
