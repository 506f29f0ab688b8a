// The classes of optimizers as rows: one for each of torch::optim and of ours. Code that asks which
// optimizer it has in hand reads a row; a new optimizer is a new row.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>

#include "core/torch.h"
#include "mezzo/optim.h"

namespace mezzo::optim {

using ParamState = torch::optim::OptimizerParamState;
using TensorVisit = std::function<void(at::Tensor&)>;

/// The state that an optimizer keeps for a parameter.
struct StateKind {
  const std::type_info* type;
  /// Is it of this class, or of one derived from it?
  bool (*is)(const ParamState&);
  /// Calls the visitor for every defined tensor; it may replace the tensor.
  void (*visit)(ParamState&, const TensorVisit&);
  /// Sets the number of steps; null for a class that counts none.
  void (*set_step)(ParamState&, std::int64_t);
};

/// A class of optimizers.
struct OptimizerKind {
  /// In files and errors. A fused optimizer whose state torch::optim reads has the name of that
  /// class.
  std::string_view name;
  const std::type_info* type;
  /// Is it of this class, or of one derived from it?
  bool (*is)(const torch::optim::Optimizer&);
  /// Replaces `name` if options decide which optimizer it is; null otherwise.
  std::string (*name_by_options)(const torch::optim::Optimizer&);
  const StateKind* state;
  /// The weight decay in options of this class; null in options of other classes, and if the class
  /// has none.
  double* (*weight_decay)(Options&);
  /// The number added to a denominator that is computed in the parameter's own type; 0 in options
  /// of other classes.
  double (*eps)(const Options&);
  /// Makes the states that the class makes at construction and expects ever after; null for a class
  /// that makes a state when it needs one.
  void (*make_states)(torch::optim::Optimizer&);
  /// Does it step masters that are split into a weight and what stands beside it?
  bool steps_split_masters;
  /// Does it evaluate its closure more than once, or after it has moved weights?
  bool evaluates_again;
};

/// All rows.
std::span<const OptimizerKind> optimizer_kinds();

/// The row of an optimizer; null for a class that is not known.
const OptimizerKind* kind_of(const torch::optim::Optimizer&);

/// The row of a state; null for a class that is not known.
const StateKind* kind_of(const ParamState&);

/// "Adam or AdamW": a FusedAdam of which some groups are the one, some the other.
inline constexpr std::string_view kEitherAdam = "Adam or AdamW";

/// The name of an optimizer's class in files and errors. A class that is not known has its C++
/// name.
std::string name_of(const torch::optim::Optimizer&);

/// The name for what older files say, which have the compiler's name for some classes. Any other
/// text is returned as it is.
std::string name_from_file(std::string_view written);

/// The weight decay in options of any known class; null if they have none, or are of another class.
double* weight_decay_of(Options&);

}  // namespace mezzo::optim
