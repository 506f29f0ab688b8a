// Numbers in a trace that the network computed from sizes of its inputs become arithmetic on sizes.
#pragma once

#include <string>
#include <vector>

#include "deploy/examples.h"
#include "deploy/recording.h"
#include "deploy/sizes_expression.h"

namespace mezzo::deploy {

/// A constant of the trace that is computed from sizes.
struct Followed {
  std::size_t node = 0;                 // the constant
  std::optional<SizeExpression> whole;  // an integer
  std::optional<ScaledSize> scaled;     // or a number of floating point
};

/// A size of a tensor in the trace.
struct SizeOfTensor {
  std::size_t node = 0;    // that makes the tensor; with `input`: none
  std::size_t output = 0;  // of the node, or which input of the graph
  bool is_input = false;
  std::size_t dimension = 0;
};

/// Traces of one network at several sizes of its inputs; the first one is at the examples' sizes.
class SizeFollower {
 public:
  /// @param where  for messages
  SizeFollower(const detail::NetworkCall& call, torch::jit::Module& mirror,
               std::vector<c10::IValue> values, std::vector<AxisOfInputs> axes, std::string where);

  /// Traces at other sizes and finds out what the differing constants are. Throws UnsupportedError
  /// that names axis and module where that fails.
  void follow();
  /// Writes the arithmetic into the graph of the first trace.
  void rewrite();
  /// Throws Error if a trace at these inputs does other things, or has other numbers, than the
  /// followed one.
  void check(const std::vector<c10::IValue>& other);

  Recording& first() { return traces_.front(); }
  /// Other inputs at which the network itself runs: all axes changed; then, for each axis whose
  /// arithmetic few sizes tell, that axis alone, and the last of these once more at another size.
  /// None without axes.
  const std::vector<std::vector<c10::IValue>>& other_inputs() const { return other_inputs_; }

 private:
  std::vector<std::int64_t> sizes_that_run(std::size_t axis);
  void add_trace(const std::vector<std::int64_t>& sizes, const std::string& changed);
  void list_atoms();
  /// Lists sizes and differing constants, and finds the arithmetic of these.
  void explain();
  /// Does a constant whose arithmetic few sizes tell from another differ in one of these traces?
  bool is_doubtful_in(std::size_t first_trace, std::size_t traces) const;
  /// Adds traces at further sizes of an axis, where the network does the same there, and the
  /// farthest of them to the other inputs. Returns inputs of the farthest but one.
  std::vector<c10::IValue> add_telling_traces(std::size_t axis, std::vector<std::int64_t> sizes);
  std::string use_of(std::size_t node) const;
  Followed follow_constant(std::size_t node, std::size_t atoms_before) const;
  torch::jit::Value* emit(const SizeExpression& expression);
  torch::jit::Value* emit_atom(std::size_t atom);
  std::vector<std::int64_t> atoms_of(const Recording& recording) const;

  const detail::NetworkCall& call_;
  torch::jit::Module& mirror_;
  std::vector<c10::IValue> values_;
  std::vector<AxisOfInputs> axes_;
  std::string where_;
  std::vector<Recording> traces_;
  std::vector<std::string> changed_;  // which axes a trace changed, for messages
  std::vector<SizeOfTensor> atoms_;
  std::vector<Seen> seen_;  // of the atoms
  std::vector<Followed> followed_;
  std::vector<std::vector<c10::IValue>> other_inputs_;
};

}  // namespace mezzo::deploy
