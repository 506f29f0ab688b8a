// One run of a network under LibTorch's tracer, and how it differs from another run.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/torch.h"
#include "deploy/failed_run.h"
#include "mezzo/deploy_call.h"

namespace mezzo::deploy {

/// The tracer's record.
struct Recording {
  std::shared_ptr<torch::jit::Graph> graph;
  c10::IValue output;
  std::vector<torch::jit::Node*> nodes;  // in order, without those that fetch parameters
  std::unordered_map<const torch::jit::Value*, std::string> parameters;  // by path
  std::unordered_map<const torch::jit::Value*, std::size_t> numbers;     // of all other values
};

/// Which of the values are inputs of the result: what holds tensors. The others are fixed.
bool is_traced(const c10::IValue& value);

/// Runs the network on copies of the values. `mirror` has its tensors. Throws Error, which says
/// where the network stopped, with what the network threw, and UnsupportedError for a result that a
/// trace cannot give.
Recording record(const detail::NetworkCall& call, const std::vector<c10::IValue>& values,
                 torch::jit::Module& mirror, const RunOf& run);

/// A record with its nodes and values in order.
Recording listed(std::shared_ptr<torch::jit::Graph> graph);

/// Where a node is, for readers: "aten::view in `head`", "aten::add after `conv1`".
std::string place_of(const Recording& recording, std::size_t node);

/// Where two runs part: other operators, or other connections.
struct Parting {
  std::size_t node = 0;
  std::string what;
};

/// The first node at which the runs do other things, and, of runs that do the same, the constants
/// whose values differ (numbers of nodes, added to `constants`).
std::optional<Parting> compare(const Recording& one, const Recording& other,
                               std::vector<std::size_t>* constants);

/// "2", "[1, 2]", "a tensor of sizes [3]".
std::string text_of(const c10::IValue& value);

}  // namespace mezzo::deploy
