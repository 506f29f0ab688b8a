// One operator call of a program that can be made again: with other types, under other casts, apart
// from the program's graph.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <optional>
#include <string>
#include <vector>

#include "casting/decision.h"
#include "core/torch.h"
#include "mezzo/policy.h"

namespace mezzo::insight {

/// The scope that an operator ran in.
struct CastRules {
  Policy policy;
  casting::Mode mode;
};

/// The rules of this thread, now; nothing if operators are left alone.
std::optional<CastRules> current_rules();

/// A call that was made again. Its inputs are leaves of a graph of its own.
struct Repeat {
  bool ran = false;                      // no exception
  std::vector<at::Tensor> leaves = {};   // one per floating input; undefined: needs no gradient
  std::vector<at::Tensor> outputs = {};  // the floating ones
  double seconds = 0;
};

/// The gradients of the leaves by those of the outputs (undefined ones are zero); one per leaf,
/// undefined if none flows. Empty if that throws. `seconds`: how long it took.
std::vector<at::Tensor> gradients_of(const Repeat& repeat, const std::vector<at::Tensor>& outputs,
                                     double* seconds = nullptr);

/// How the floating inputs of a repetition come.
struct InputTypes {
  std::vector<at::ScalarType> types = {};  // by place; Undefined, or none: as they are
  int rounded = -1;                        // this one alone goes through its type and back
  bool back = false;                       // all go through their types and back
  bool scaled = false;  // all go through a float8 type and back, each with a scale of its own
  std::vector<at::ScalarType> held = {};  // by place: float numbers that this type holds come in
};

class OperatorCall {
 public:
  /// Inside the start callback. Nothing for what is no operator of the dispatcher.
  static std::optional<OperatorCall> of(const at::RecordFunction& call);

  /// "addmm"; of other namespaces whole.
  const std::string& name() const noexcept { return name_; }
  /// With its overload: "softmax.int".
  const std::string& overload() const noexcept { return overload_; }
  /// All tensors among the arguments.
  const std::vector<at::Tensor>& tensors() const noexcept { return tensors_; }
  /// The tensors that take part in mixed precision: strided, float or low.
  const std::vector<at::Tensor>& inputs() const noexcept { return inputs_; }
  std::vector<at::ScalarType> types() const;
  /// Does it compute? Not a view, a cast or a copy, and some input is floating.
  bool computes() const noexcept { return computes_; }
  /// A change of type.
  bool is_cast() const noexcept { return is_cast_; }

  /// Calls it on copies of what it might change, with the scope in force on this thread, or under
  /// `rules` if there are any. Generators are given back. `records`: with a graph, if the program
  /// records one.
  Repeat repeat(const InputTypes& types = {}, const std::optional<CastRules>& rules = {},
                bool records = true) const;

 private:
  explicit OperatorCall(c10::OperatorHandle handle) : handle_(std::move(handle)) {}

  c10::OperatorHandle handle_;
  std::string name_, overload_;
  std::vector<c10::IValue> arguments_;
  std::vector<at::Tensor> tensors_, inputs_;
  bool computes_ = false, is_cast_ = false, writes_ = false;
};

/// The floating tensors among results.
std::vector<at::Tensor> floating_tensors(at::ArrayRef<c10::IValue> values);

}  // namespace mezzo::insight
