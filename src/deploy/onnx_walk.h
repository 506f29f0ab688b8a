// Goes through a graph of TorchScript: what follows from no input is computed, everything else is
// said in ONNX, and both are run on the examples, from which types and sizes are known.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {

class Walker {
 public:
  Walker(Builder& builder, const OnnxOptions& options) : g_(builder), options_(options) {}

  /// Gives the values of the graph's inputs, the module first, and goes through it.
  OnnxValue run(const torch::jit::Graph& graph, std::vector<OnnxValue> inputs);

 private:
  using Node = torch::jit::Node;
  void block(const torch::jit::Block& block);
  void node(const Node& node);
  bool structure(const Node& node);
  bool lists(const Node& node);
  bool dictionaries(const Node& node);
  void branch(const Node& node);
  void loop(const Node& node);
  void dynamic_branch(const Node& node, const OnnxValue& condition);
  void operation(const Node& node);
  void attribute(const Node& node);
  /// A list of sizes of the first operand, which change from run to run.
  OnnxValue list_of_sizes(const Node& node, const std::vector<OnnxValue>& operands,
                          const std::vector<c10::IValue>& examples);
  std::vector<OnnxValue> by_caller(const Node& node, const OnnxTranslation& translation,
                                   const std::vector<OnnxValue>& operands,
                                   const std::vector<std::vector<c10::IValue>>& results);
  std::vector<OnnxValue> by_row(const Node& node, const std::vector<OnnxValue>& operands,
                                const std::vector<std::vector<c10::IValue>>& results);
  void say(const Node& node, const std::vector<OnnxValue>& operands,
           std::vector<std::vector<c10::IValue>> results);
  void write(const OnnxValue& target, const std::string& name);
  void note_view(const Node& node, const std::vector<OnnxValue>& operands, const OnnxValue& result);
  std::vector<std::vector<c10::IValue>> evaluate(const Node& node,
                                                 const std::vector<OnnxValue>& operands) const;
  std::vector<OnnxValue> operands_of(const Node& node) const;
  const OnnxValue& value(const torch::jit::Value* value) const;
  void set(const torch::jit::Value* value, OnnxValue operand);
  std::string place_of(const Node& node) const;

  Builder& g_;
  const OnnxOptions& options_;
  std::unordered_map<const torch::jit::Value*, OnnxValue> values_;
  std::unordered_map<const c10::ivalue::Object*, std::string> paths_;
  std::string last_module_;
};

/// Describes how views are taken again, and put back (onnx_views.cpp). Leaves the view
/// without either where nothing is known.
void describe_view(const Call& call, View* view);

}  // namespace mezzo::deploy::detail
