// The treatment of a node's operands: by the operator's class, the names that stay float, and
// the node's constants.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/script/classes.h"
#include "deploy/script/names.h"

namespace mezzo::deploy::script {

enum class Way : std::uint8_t {
  kLeave,         ///< as they arrive
  kLow,           ///< cast to the low type
  kFloat,         ///< cast to float
  kFloatResult,   ///< as they arrive, with float in place of the empty `dtype` argument
  kWidest,        ///< cast to the widest type among them
  kWritten,       ///< cast to the type of the tensor that is written
  kThroughFloat,  ///< computed on float copies, and what is written gets the result
  kRestore,       ///< cast back to the types of the original: code that is not looked into
};

struct Verdict {
  Way way = Way::kLeave;
  std::string why;
  std::string op;                     ///< "aten::conv2d"; empty: no operator that counts
  std::vector<std::size_t> operands;  ///< the inputs that are cast
  std::size_t dtype_argument = 0;     ///< of kFloatResult
  bool product = false;               ///< its floating operands must have one type
  bool clamps = false;  ///< of kThroughFloat: the result must stay in the low type's range
};

/// Decides about the nodes of a module's graphs.
class Judge {
 public:
  Judge(const OperatorClasses& classes, const ExcludedNames& excluded,
        const torch::jit::Module& module)
      : classes_(classes), excluded_(excluded), module_(module) {}

  Verdict judge(const torch::jit::Node& node) const;

 private:
  std::string excluded_by(const torch::jit::Node& node) const;
  Verdict by_row(const torch::jit::Node& node, const Found& found, Verdict verdict) const;
  Verdict in_place(const torch::jit::Node& node, const Operator* row, CastClass cast_class,
                   Verdict verdict) const;
  bool holds_condition(const torch::jit::Node& node, std::size_t row) const;
  bool holds_scalars(const torch::jit::Node& node) const;

  const OperatorClasses& classes_;
  const ExcludedNames& excluded_;
  const torch::jit::Module& module_;
};

/// Does the low type hold the number as something finite and normal? Zero, infinities and NaN are
/// held.
bool is_held(double value, DType low);

}  // namespace mezzo::deploy::script
