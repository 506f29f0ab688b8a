// A loop as the examples run it, apart from ONNX: what is carried from turn to turn, what the body
// writes outside of itself, and how long the loop runs.
#pragma once

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/torch.h"

namespace mezzo::deploy::detail {

/// The advice for a list that grows in some turns, or on some inputs, alone.
inline constexpr const char* kSelectBehind =
    "append in every turn, and whether it counts to a second list, as a tensor of truth values; "
    "select behind the loop: torch.stack(values)[torch.stack(counts)]";

/// The values at the beginning of one turn.
struct Turn {
  std::int64_t number = 0;
  std::vector<c10::IValue> carried;   // as the loop's node carries them
  std::vector<c10::IValue> captured;  // what the body reads from around it
};

/// One run of a loop.
struct Turns {
  std::vector<Turn> samples;  // the first turns and the last; without turns: what the first was
  Turn after;
  std::int64_t count = 0;
  std::vector<bool> is_written;       // of captured values: tensors that the body writes
  std::vector<std::int64_t> growths;  // of captured values: how much a list grows in a turn
};

/// The body of a loop as a function.
class LoopBody {
 public:
  explicit LoopBody(const torch::jit::Node& loop);

  /// Values from around the loop that the body reads, nested blocks included.
  const std::vector<torch::jit::Value*>& captured() const { return captured_; }

  /// Runs the loop on copies. `count` and `condition` are its first operands. With `turns` it runs
  /// that often, whatever they say.
  Turns run(std::int64_t count, bool condition, std::vector<c10::IValue> carried,
            const std::vector<c10::IValue>& captured, std::optional<std::int64_t> turns = {}) const;

 private:
  std::vector<torch::jit::Value*> captured_;
  torch::jit::Code code_;
};

}  // namespace mezzo::deploy::detail
