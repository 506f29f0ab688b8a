// Goes through a graph of TorchScript: what follows from no input is computed, everything else is
// translated to ONNX, and both are run on the examples, from which types and sizes are known.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <exception>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {

class Walker {
 public:
  /// So many of the builder's last sets of inputs are imagined: the first one again, and sizes
  /// that follow from values differ there.
  Walker(Builder& builder, const OnnxOptions& options, std::size_t imagined)
      : g_(builder), options_(options), imagined_(imagined), runs_(builder.variants()) {}

  /// Gives the values of the graph's inputs, the module first, and goes through it.
  OnnxValue run(const torch::jit::Graph& graph, std::vector<OnnxValue> inputs);

 private:
  using Node = torch::jit::Node;
  void block(const torch::jit::Block& block);
  void node(const Node& node);
  bool structure(const Node& node);
  bool lists(const Node& node);
  bool changes_list(const Node& node, const OnnxValue& list);
  bool dictionaries(const Node& node);
  /// An operand as it is, to be taken back to, with the memory of it that may be written.
  struct Kept {
    std::shared_ptr<Operand> operand;
    Operand::Kind kind;
    std::string name, path;
    std::vector<c10::IValue> examples;
    std::vector<OnnxValue> elements;
    std::vector<c10::IValue> keys;
    bool is_constant;
    std::size_t version, view_version;
    std::vector<at::Tensor> tensors;
  };
  using Snapshot = std::vector<Kept>;
  Snapshot keep() const;
  void restore(const Snapshot& snapshot);
  void branch(const Node& node);
  /// One side of a branch: its results, the tensors and numbers in them with their examples, and
  /// its nodes.
  struct Side {
    std::vector<OnnxValue> results, leaves;
    std::vector<std::vector<c10::IValue>> examples;
    std::shared_ptr<convert::MadeGraph> body;
  };
  /// The memory around a branch that it writes: tensors, and elements of containers.
  struct Written {
    std::vector<std::shared_ptr<Operand>> tensors;
    std::set<std::pair<std::shared_ptr<Operand>, std::size_t>> elements;
  };
  /// Which block of a branch each run takes.
  using Taken = std::vector<std::size_t>;
  /// Goes through a block of a branch. All runs do; what those of the other block make of it is
  /// thrown away, and errors of theirs do not count.
  void block_of_branch(const Node& node, std::size_t side, const Taken& taken);
  /// As above, for the body of a loop, whose samples come from these runs.
  void block_of_loop(const torch::jit::Block& body, const std::vector<std::size_t>& run_of);
  Written written_by(const Node& node, const Taken& taken);
  Side side_of(const Node& node, std::size_t side, const Taken& taken, const Written& written);
  void write_tensors(const Written& written, const std::vector<OnnxValue>& results);
  void dynamic_branch(const Node& node, const OnnxValue& condition);
  /// A loop that is being unrolled ends when inputs decide so.
  struct EndsByInputs : std::exception {};
  void loop(const Node& node);
  void unroll(const Node& node);
  class DynamicLoop;
  void dynamic_loop(const Node& node);
  void grow(const OnnxValue& list, const Names& scans, std::vector<c10::IValue> examples);
  void append_to_grown(const Node& node, const OnnxValue& list, const OnnxValue& element);
  std::string of_grown(const Node& node, const std::vector<OnnxValue>& operands,
                       at::ScalarType result);
  bool grown_lists(const Node& node);
  bool packed_sequences(const Node& node);
  bool is_imagined(std::size_t run) const {
    return run + imagined_ >= runs_ && g_.variants() == runs_;
  }
  /// In the second of the imagined runs lengths that follow from values are zero.
  bool is_empty_run(std::size_t run) const {
    return is_imagined(run) && imagined_ == 2 && run + 1 == runs_;
  }
  /// The examples cannot be run through a node.
  [[noreturn]] void fail(const Node& node, const std::string& why) const;
  void operation(const Node& node);
  // onnx_objects.cpp
  bool objects(const Node& node);
  void attribute(const Node& node);
  void write_attribute(const Node& node);
  static std::size_t place_in(const Operand& object, const std::string& name);
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
  torch::jit::Stack evaluate_run(const Node& node, const std::vector<OnnxValue>& operands,
                                 std::size_t k) const;
  std::vector<std::vector<c10::IValue>> evaluate(const Node& node,
                                                 const std::vector<OnnxValue>& operands) const;
  std::vector<OnnxValue> operands_of(const Node& node) const;
  const OnnxValue& value(const torch::jit::Value* value) const;
  void set(const torch::jit::Value* value, OnnxValue operand);
  std::string place_of(const Node& node) const;

  Builder& g_;
  const OnnxOptions& options_;
  std::size_t imagined_;
  std::size_t runs_;
  std::unordered_map<const torch::jit::Value*, OnnxValue> values_;
  std::unordered_map<const c10::ivalue::Object*, std::string> paths_;
  using Attributes = std::map<std::pair<const c10::ivalue::Object*, std::string>, OnnxValue>;
  Attributes attributes_;  // tensors
  Attributes written_;     // of modules, in this call
  std::string last_module_;
  std::vector<bool> stays_out_;  // of the runs, out of the block that is gone through; empty: none
};

/// Describes how views are taken again, and put back (onnx_views.cpp). Leaves the view
/// without either where nothing is known.
void describe_view(const Call& call, View* view);

/// Does the length of the node's results follow from the values of its operands?
/// (onnx_imagined.cpp)
bool counts_values(const torch::jit::Node& node);

/// Lets such results have another length; with `empty`, none.
void imagine_lengths(const torch::jit::Node& node, const torch::jit::Stack& operands, bool empty,
                     std::vector<c10::IValue>* results);

}  // namespace mezzo::deploy::detail
