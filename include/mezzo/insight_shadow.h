// Where does precision get lost? One step runs in float and as the level says, side by side.
//
//   auto run = mezzo::insight::shadow_run(model, [&] { return loss(model(batch.data),
//   batch.target); }); log << run.to_text();
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/insight_explain.h"
#include "mezzo/report.h"

namespace mezzo::insight {

/// How far a level takes one operator call from float. Errors are the largest difference to the
/// float result over the largest magnitude of that result; infinite if the level's result is not
/// finite and the float result is. In the backward pass they are those of the gradients that the
/// operator's derivative gives, with the loss scale in force; of several results the worst counts.
struct OperatorError {
  std::string name = {};    ///< as Operator::name
  std::string module = {};  ///< as Operator::module
  bool backward = false;    ///< of its derivative?
  /// Against float on the same inputs: those of the float run, of which those that the level has in
  /// its low type come rounded in both. Weights and floats that the level casts for the operator do
  /// not: the rounding of these casts is the operator's own. Zero if the operator is exact, or the
  /// level computes it in float.
  double own = 0;
  double accumulated = 0;  ///< on the inputs that the level's run had: with all before it
  at::ScalarType dtype = at::kFloat;  ///< of the result at that level
};

/// The cost of casting one tensor.
struct CastError {
  std::string name = {};       ///< the operator that it is cast for, or the cast itself ("to")
  std::string module = {};     ///< as Operator::module
  std::string parameter = {};  ///< the weight or buffer; empty: an activation
  int input = 0;               ///< which of the operator's tensors, from 0
  at::ScalarType dtype = at::kHalf;  ///< the low type
  /// The error of the operator's result where this input alone is rounded and all else is float; of
  /// a cast that the program or the level makes itself that of the tensor.
  double error = 0;
  double seconds = 0;  ///< that casting it takes here, once
};

/// The findings of shadow_run().
class ShadowRun {
 public:
  /// @cond
  struct Found {
    std::string level = {};
    double loss_scale = 1;
    std::vector<OperatorError> operators = {};
    std::vector<CastError> casts = {};
  };
  explicit ShadowRun(Found found) : found_(std::move(found)) {}
  /// @endcond

  /// Every operator call of the step that computes with floating-point numbers, in forward and
  /// backward, the largest `own` first, of equal ones the largest `accumulated`; casts, views and
  /// what could not be repeated are left out.
  const std::vector<OperatorError>& operators() const noexcept { return found_.operators; }
  /// Every cast of weights and activations to the low type, the largest error first.
  const std::vector<CastError>& casts() const noexcept { return found_.casts; }
  /// The level that was compared with float: "O1".
  const std::string& level() const noexcept { return found_.level; }
  /// The loss scale of the backward passes.
  double loss_scale() const noexcept { return found_.loss_scale; }

  /// A table of the `most` worst operators and casts.
  MEZZO_API std::string to_text(int most = 12) const;
  /// An object with `level`, `loss_scale`, `operators` and `casts`; an infinite error is null.
  MEZZO_API std::string to_json() const;
  /// The findings as an event for a sink of reports; its text is to_text().
  MEZZO_API report::PrecisionCompared to_event() const;
  /// Writes that event into the log of a run, from where the page shows it.
  MEZZO_API void write(report::Sink& log) const;

 private:
  Found found_;
};

/// @cond
namespace detail {
MEZZO_API ShadowRun shadow(const Subject& subject, const std::function<at::Tensor()>& loss);
}  // namespace detail
/// @endcond

/// Runs one step as the model's level does, and again in float, with the masters' values where the
/// weights are low, on the same random numbers. In the float run every operator is computed twice
/// more, as the level would and in float, on the same rounded inputs, forward and backward.
///
/// `models` is a Model that `initialize` returned (or a DistributedDataParallel around one), a
/// tuple or a vector of them; `loss` computes an unscaled loss by calling them. It is called
/// twice, must do the same both times, and keeps all activations of a step several times over.
/// Operators that a custom autograd function or a recomputed part calls are compared in their
/// forward pass. Weights, gradients, buffers, scales, counters and the default generators are
/// afterwards as before, to the bit.
///
/// Throws ConfigError if `loss` gives no differentiable loss, and what `loss` throws. Threads:
/// one run at a time in a process.
template <class M>
ShadowRun shadow_run(M& models, const std::function<at::Tensor()>& loss) {
  [[maybe_unused]] const auto alone = detail::without_reduction(models);
  detail::Subject subject;
  detail::add_models(models, subject.models);
  return detail::shadow(subject, loss);
}

}  // namespace mezzo::insight
