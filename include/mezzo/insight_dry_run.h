// Which parts of a network should stay in float? Steps in float show the range of every operator,
// and what 16 bits would make of it.
//
//   auto run = mezzo::insight::dry_run(net, [&] { return loss(net(data), target); });
//   log << run.to_text();
//   auto [model, optimizer] =
//       amp::initialize(net, sgd, {.opt_level = "O1", .policy = run.policy(at::kHalf)});
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mezzo/cast_class.h"
#include "mezzo/export.h"
#include "mezzo/insight_explain.h"
#include "mezzo/insight_lint.h"
#include "mezzo/policy.h"
#include "mezzo/report.h"

namespace mezzo::insight {

/// Why an operator is where it is in an advised policy.
struct PolicyReason {
  std::string name = {};                       ///< the operator, as the policy names it
  CastClass cast_class = CastClass::kNeutral;  ///< its class there
  std::string text = {};                       ///< what was seen, with figures and the module
};

/// The default policy with what a dry run found unfit for the low type in float.
class AdvisedPolicy : public Policy {
 public:
  /// @cond
  AdvisedPolicy(Policy policy, at::ScalarType target, double loss_scale,
                std::vector<PolicyReason> reasons)
      : Policy(std::move(policy)),
        target_(target),
        loss_scale_(loss_scale),
        reasons_(std::move(reasons)) {}
  /// @endcond

  /// One per operator that differs from the defaults; for float8 one per product.
  const std::vector<PolicyReason>& reasons() const noexcept { return reasons_; }
  /// The type that was asked about. For a float8 type the policy itself is that of bfloat16, and
  /// `reasons()` estimate which of its products float8 would bear.
  at::ScalarType target() const noexcept { return target_; }
  /// The largest power of two up to 65536 that leaves the gradients of these steps half of the
  /// type's range; 1 if the range is float's.
  double loss_scale() const noexcept { return loss_scale_; }

  /// A policy file, each operator with its reason as a comment: Policy::from_toml reads an equal
  /// policy from it.
  MEZZO_API void to_toml(std::ostream& out) const;
  /// The policy file as a string.
  MEZZO_API std::string toml() const;

 private:
  at::ScalarType target_;
  double loss_scale_;
  std::vector<PolicyReason> reasons_;
};

/// Time and memory of the operators of one class, measured here, a step: forward and backward.
struct ClassCost {
  CastClass cast_class = CastClass::kNeutral;  ///< by the default lists
  std::int64_t calls = 0;                      ///< operator calls
  double float_seconds = 0;                    ///< in float
  double low_seconds = 0;                      ///< under the default policy
  std::int64_t float_bytes = 0;                ///< of their results in float
  std::int64_t low_bytes = 0;                  ///< under the default policy
};

/// A product whose sizes matrix units do not like.
struct OddSize {
  std::string name = {};                  ///< as Operator::name
  std::string module = {};                ///< as Operator::module
  std::vector<std::int64_t> sizes = {};   ///< of an operand
  std::vector<std::int64_t> padded = {};  ///< the same in multiples of 8
};

/// @cond
namespace detail {
struct DryFindings;
}  // namespace detail
/// @endcond

/// The findings of dry_run(). A cheap value; copies share.
class MEZZO_API DryRun {
 public:
  /// @cond
  explicit DryRun(std::shared_ptr<const detail::DryFindings> found) : found_(std::move(found)) {}
  /// @endcond

  /// Every operator call that computes with floating-point numbers, over all steps: forward in
  /// order, with the ranges of inputs and first result; then backward, last call first, with the
  /// gradients that arrive as inputs and the largest gradient that is made as output.
  const std::vector<Operator>& ranges() const noexcept;
  /// How many steps were run.
  int steps() const noexcept;

  /// The default lists with what should stay float in float16 or bfloat16: operators that the
  /// default lists do not compute in float and that, on these steps, give an infinity or NaN, come
  /// within a factor of two of the type's end, or err by more than 32 roundings. With float8_e4m3fn
  /// and float8_e5m2 an estimate: products err by more than an eighth although each operand has a
  /// scale of its own. Throws ConfigError for another type.
  AdvisedPolicy policy(at::ScalarType low) const;
  /// The cost of the default policy against float, by class; float16 or bfloat16.
  std::vector<ClassCost> costs(at::ScalarType low) const;
  /// The products with sizes that are no multiples of 8, each once.
  const std::vector<OddSize>& odd_sizes() const noexcept;

  /// The advice for a terminal.
  std::string to_text() const;
  /// An object with `steps`, `policies` (each with `toml`, `reasons`, `loss_scale`, `costs`),
  /// `odd_sizes` and `ranges`.
  std::string to_json() const;
  /// Writes the advice into the log of a run, from where `mezzo advise` prints it and the page
  /// shows it.
  void write(report::Sink& log) const;

 private:
  std::shared_ptr<const detail::DryFindings> found_;
};

/// @cond
namespace detail {
MEZZO_API DryRun dry(const LintSubject& subject, const std::function<at::Tensor()>& loss,
                     int steps);
}  // namespace detail
/// @endcond

/// Runs forward and backward in float, `steps` times, and looks at every operator: its ranges, and
/// its results under the default policies of float16 and bfloat16 on the types that would arrive.
///
/// `model` is a bare network (a module holder or shared pointer), or a Model of any level, which
/// runs in float then, with its masters' values. `loss` computes an unscaled loss with it, and may
/// take another batch each time. Nothing is trained: weights, gradients, buffers, scales and the
/// default generators are afterwards as before, to the bit. Activations are kept several times over
/// during a step.
///
/// Throws ConfigError if `loss` gives no differentiable loss or `steps` is below 1, and what
/// `loss` throws. Threads: one run at a time in a thread.
template <class M>
DryRun dry_run(M& model, const std::function<at::Tensor()>& loss, int steps = 1) {
  [[maybe_unused]] const auto alone = detail::without_reduction(model);
  detail::LintSubject subject;
  detail::add_network(model, subject);
  return detail::dry(subject, loss, steps);
}

}  // namespace mezzo::insight
