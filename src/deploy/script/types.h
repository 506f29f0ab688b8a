// The types of all values of a graph: as it is, and as it will be with casts.
#pragma once

#include <unordered_map>
#include <vector>

#include "deploy/script/facts.h"
#include "deploy/script/verdict.h"

namespace mezzo::deploy::script {

using Verdicts = std::unordered_map<const torch::jit::Node*, Verdict>;

/// The effect of casting on an operand.
struct OperandCast {
  bool casts = false;
  Kind target = Kind::kFloat;  ///< kFloat or kLow
};

/// The effect of a verdict on the operands of a node, by their facts. Not for kWritten and
/// kRestore.
OperandCast cast_of(const Verdict& verdict, const std::vector<Fact>& facts);

/// Is one of the operands of a product float32 or low? Then all of them are, or the product throws.
bool has_real_operand(const Verdict& verdict, const std::vector<Fact>& facts);

/// Follows types through a graph, loops included.
class Types {
 public:
  /// The types that the values of a graph start from, and how far it is looked at.
  struct Start {
    at::ScalarType low;
    std::vector<Fact> inputs;  ///< of the graph's inputs, without the module; may be shorter
    std::unordered_map<const torch::jit::Value*, Fact> known = {};  ///< of single values
    const Verdicts* verdicts = nullptr;  ///< null: the graph as it is, without casts
    const Types* original = nullptr;     ///< the types without casts
  };

  /// @param changing  lists and dictionaries that the graph changes after they are made
  Types(torch::jit::Graph& graph, const torch::jit::Module& module,
        const std::unordered_map<const torch::jit::Value*, bool>& changing, Start start);

  const Fact& of(const torch::jit::Value* value) const;

 private:
  void follow(torch::jit::Block* block);
  void follow(torch::jit::Node* node);
  void follow_loop(torch::jit::Node* node);
  void follow_operator(torch::jit::Node* node);
  void follow_attribute(torch::jit::Node* node);
  void follow_if(torch::jit::Node* node);
  bool follow_structure(torch::jit::Node* node);
  bool follow_tuple(torch::jit::Node* node);
  bool follow_container(torch::jit::Node* node);
  void learn_from_product(const torch::jit::Node& node);
  Fact of_container(const torch::jit::Node& node, std::size_t first, std::size_t step) const;
  void set(const torch::jit::Value* value, Fact fact);
  std::vector<Fact> inputs_of(const torch::jit::Node& node) const;

  const torch::jit::Module& module_;
  const std::unordered_map<const torch::jit::Value*, bool>& changing_;
  Start start_;
  std::unordered_map<const torch::jit::Value*, Fact> facts_;
  std::unordered_map<const torch::jit::Value*, Fact> learned_;
};

}  // namespace mezzo::deploy::script
