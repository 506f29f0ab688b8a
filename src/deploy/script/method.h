// One method of the module that is converted.
#pragma once

#include <torch/csrc/jit/ir/alias_analysis.h>

#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "deploy/script/inlined.h"
#include "deploy/script/types.h"

namespace mezzo::deploy::script {

/// A graph without calls, and what is known of it.
struct ScriptMethod {
  std::string name;
  std::shared_ptr<torch::jit::Graph> graph = {};
  std::set<std::string> written = {};  ///< attributes that it sets, by path
  std::unique_ptr<torch::jit::AliasDb> aliases = {};
  std::unordered_map<const torch::jit::Value*, bool> changing = {};  ///< lists and dictionaries
  Verdicts verdicts = {};
  std::unique_ptr<Types> original = {}, converted = {};
};

}  // namespace mezzo::deploy::script
