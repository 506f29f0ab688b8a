// Why was this step skipped? One more evaluation under observation says which operator first made
// an infinity or NaN, in which module, on which values, and what helps.
//
//   if (optimizer.step().skipped()) {
//     auto why = mezzo::insight::explain_overflow(model, optimizer, [&] {
//       return loss(model(batch.data), batch.target);
//     });
//     log << why.to_text();
//   }
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "mezzo/events.h"
#include "mezzo/export.h"
#include "mezzo/model.h"
#include "mezzo/optimizer.h"
#include "mezzo/policy.h"

namespace mezzo::insight {

/// The values of a tensor in short. Minimum, maximum and smallest magnitude are those of its finite
/// values, and NaN if it has none.
struct TensorRange {
  at::ScalarType dtype = at::kFloat;             ///< its element type
  std::vector<std::int64_t> sizes = {};          ///< its shape
  double min = 0;                                ///< least finite value
  double max = 0;                                ///< greatest finite value
  double smallest = 0;                           ///< least magnitude that is not zero; 0: none
  std::int64_t zeros = 0;                        ///< how many values are zero
  std::int64_t nans = 0;                         ///< how many values are NaN
  std::int64_t infs = 0;                         ///< how many values are infinite
  std::vector<std::int64_t> largest_at = {};     ///< where the largest finite magnitude sits
  std::vector<std::int64_t> not_finite_at = {};  ///< where the first infinity or NaN sits
  std::string parameter = {};                    ///< the parameter or buffer that it is, or views
};

/// An operator call of the step.
struct Operator {
  /// The outermost operator that the program called, without "aten::" and overload; a custom
  /// autograd function by its class. In the backward pass that of the forward operator whose
  /// derivative was computed: "to" for a cast, such as that of the network's output.
  std::string name = {};
  /// The path of the module whose parameters it uses; for others "between A and B", "after A" or
  /// "before B", by the nearest operators of the graph that use some. A parameter of the network's
  /// root counts as a module. Empty if the network has none.
  std::string module = {};
  bool backward = false;                 ///< in the backward pass?
  std::vector<TensorRange> inputs = {};  ///< tensors; backward: gradients first, then saved ones
  TensorRange output = {};               ///< the first that is not finite
};

/// The kind of fault.
enum class Cause {
  kOverflow,          ///< a result beyond the range of its type
  kGradientOverflow,  ///< the same in the backward pass, whose values carry the loss scale
  kLogOfZero,         ///< a logarithm of zero
  kDivisionByZero,    ///< a division by zero, also in a derivative; mean or deviation of nothing
  kInvalid,           ///< inf - inf, 0 * inf, roots and logarithms of negative values
  kBadInput,          ///< the data holds infinities or NaNs, or the program puts some into them
  kExplodedWeights,   ///< weights are not finite, beyond the operator's type, too large for float
                      ///< as well, or have grown eightfold since the first step
  kUnknown,           ///< none of these was recognised
};

/// The name of a cause in JSON: "overflow", "gradient_overflow", "log_of_zero", ...
MEZZO_API std::string to_string(Cause cause);

/// Something to change.
struct Advice {
  std::string text = {};                     ///< what to do, in a sentence
  std::optional<Policy> policy = {};         ///< Options::policy that keeps operators float
  std::optional<double> loss_scale = {};     ///< a scale with which the step passes
  std::vector<std::string> keep_float = {};  ///< Options::keep_float that helps
  bool tried = false;  ///< the step was run with it, and its gradients were finite
};

/// The findings of explain_overflow().
struct Explanation {
  bool reproduced = false;             ///< did the step fail again? If not, the rest is empty
  std::optional<Operator> first = {};  ///< the first operator that failed on finite inputs, if any;
                                       ///< of the forward pass where the loss is not finite
  Cause cause = Cause::kUnknown;       ///< what kind of fault
  std::string parameter = {};   ///< where weights are to blame, one of them; else the first whose
                                ///< gradient is not finite
  int rank = 0;                 ///< the process where it happened
  bool fails_in_float = false;  ///< it fails without casts and loss scale too
  bool runs_in_float = true;    ///< false: the program itself throws there; nothing is known then
  double loss_scale = 1;        ///< with which the step was run
  std::string level = {};       ///< "O1"
  int evaluations = 0;          ///< how often the step was run, at most 12
  std::vector<Advice> advice = {};  ///< the best first

  /// About ten lines for a terminal.
  MEZZO_API std::string to_text() const;
  /// One sentence: "exp of 'between fc1 and fc2' overflowed float16 ...".
  MEZZO_API std::string summary() const;
  /// An object with the fields of this struct, policies as TOML.
  MEZZO_API std::string to_json() const;
  /// The short form as an event for a sink: `log->write(why.to_event(step))`. `step` counts from 1
  /// over the whole run, as report::StepTaken does.
  MEZZO_API report::SkipExplained to_event(std::int64_t step) const;
};

/// @cond
namespace detail {

using mezzo::amp::detail::ModelState;

/// The models, optimizers and loss that a call of explain_overflow is about.
struct Subject {
  std::vector<std::shared_ptr<ModelState>> models;
  std::vector<amp::Optimizer> optimizers;
};

template <typename T>
void add_models(const T& models, std::vector<std::shared_ptr<ModelState>>& into) {
  if constexpr (std::is_base_of_v<mezzo::amp::detail::ModelHandle, T>) {
    into.push_back(models.state());
  } else if constexpr (requires { models.module(); }) {
    add_models(models.module(), into);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](const auto&... each) { (add_models(each, into), ...); }, models);
  } else {
    for (const auto& each : models) add_models(each, into);
  }
}

template <typename T>
void add_optimizers(const T& optimizers, std::vector<amp::Optimizer>& into) {
  if constexpr (std::is_base_of_v<amp::Optimizer, T>) {
    into.push_back(optimizers);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](const auto&... each) { (add_optimizers(each, into), ...); }, optimizers);
  } else {
    for (const auto& each : optimizers) add_optimizers(each, into);
  }
}

template <typename M, typename O>
Subject subject_of(const M& models, const O& optimizers) {
  Subject subject;
  add_models(models, subject.models);
  add_optimizers(optimizers, subject.optimizers);
  return subject;
}

/// Gradients of a wrapper for several processes stay this process's own while it lives.
template <typename M>
auto without_reduction(const M& model) {
  if constexpr (requires { model.no_sync(); }) {
    return model.no_sync();
  } else {
    return 0;
  }
}

MEZZO_API Explanation explain(const Subject& subject, const std::function<at::Tensor()>& loss,
                              int loss_id);

}  // namespace detail
/// @endcond

/// Runs the step that failed again, once under observation and a few times to try what would help,
/// and says what happened. For after a skipped step, or between a backward pass that overflowed and
/// `step()`.
///
/// `models` is a Model (or a DistributedDataParallel around one), a tuple or a vector of them,
/// `optimizers` an Optimizer or several. `loss` computes the loss of one backward pass, unscaled,
/// on the batch that failed, calling the models as training does; under accumulation that of the
/// failing micro-batch, or the sum. It is called at most 12 times.
///
/// The scale is that of the failed step (`loss_id` says of which loss), and so is the state of the
/// CPU's generator at the models' first call. Weights, gradients, buffers, scales, counters and
/// the default generators are afterwards as before, to the bit; so are generators of devices.
///
/// In several processes every rank calls it at the same place, and all get the explanation of the
/// lowest rank that failed. Throws ConfigError if `loss` gives no differentiable loss, and what
/// `loss` throws; everything is given back then too.
///
/// Threads: one explanation at a time in a process.
template <class M, class O>
Explanation explain_overflow(M&& models, O&& optimizers, const std::function<at::Tensor()>& loss,
                             int loss_id = 0) {
  [[maybe_unused]] const auto alone = detail::without_reduction(models);
  return detail::explain(detail::subject_of(models, optimizers), loss, loss_id);
}

}  // namespace mezzo::insight
