// The kernels in force over lists of tensors, cut into chunks and spread over workers. Lists are
// what their elements say: nothing is checked here, the bridge does.
//
// A Lists object keeps the memory that planning needs, so that a steady loop allocates nothing. It
// belongs to one thread at a time.
#pragma once

#include <span>
#include <vector>

#include "kernels/chunks.h"
#include "kernels/kernel_set.h"
#include "kernels/workers.h"

namespace mezzo::kernels {

enum class Norm { kTwo, kMax };

class Lists {
 public:
  explicit Lists(const Workers& workers) : workers_(workers) {}

  /// Is every element of every tensor finite? Reads only, and stops early when not.
  bool all_finite(std::span<const Input>);

  /// out[i] = in[i] * factor; all results finite in the output's type? All are written anyway.
  bool scale(std::span<const Input> in, std::span<const Output> out, double factor);
  bool axpby(std::span<const Input> x, std::span<const Input> y, std::span<const Output> out,
             double a, double b);
  /// out[i] = a[i] * x[i] + b[i] * y[i].
  bool axpby(std::span<const Input> x, std::span<const Input> y, std::span<const Output> out,
             std::span<const double> a, std::span<const double> b);
  void copy(std::span<const Input> in, std::span<const Output> out);
  /// Split masters as floats, row by row, and floats split.
  void join_masters(std::span<const StepRow>, std::span<float* const> masters);
  void split_masters(std::span<const StepRow>, std::span<const float* const> masters);

  /// The norm of all elements together; `per_tensor`, if not empty, gets the norm of each. The same
  /// bits for any number of workers. Not finite exactly where an element is not.
  double norm(std::span<const Input>, Norm, std::span<double> per_tensor = {});

  /// The fused steps. `scalars[row.scalars]` are a row's numbers.
  void adam(std::span<const StepRow>, std::span<const AdamScalars<double>>, const Guard&);
  void sgd(std::span<const StepRow>, std::span<const SgdScalars<double>>, const Guard&);
  void adagrad(std::span<const StepRow>, std::span<const AdagradScalars<double>>, const Guard&);
  void novograd(std::span<const StepRow>, std::span<const NovogradScalars<double>>, const Guard&);
  /// `trust(row index, norm of weight, norm of update)` gives the rate of the second half.
  /// scalars are one a row here, and their `rate` is written.
  template <typename Trust>
  void lamb(std::span<const StepRow>, std::span<LambScalars<double>>, const Guard&,
            const Trust& trust);

 private:
  /// Cuts the list into chunks; how many elements has it?
  template <typename Row>
  std::int64_t plan(std::span<const Row> rows);
  /// visit(row index, range, chunk) for all chunks of what was planned, shared out.
  template <typename Row, typename Visit>
  void share(std::span<const Row> rows, std::int64_t elements, const Visit& visit);
  /// Both.
  template <typename Row, typename Visit>
  void run(std::span<const Row> rows, const Visit& visit);
  /// share() for loops that ask for memory early: visit(row index, range, chunk, guard).
  template <typename Visit>
  void share_step(std::span<const StepRow> rows, std::int64_t elements, const Guard& guard,
                  const Visit& visit);
  /// plan() and share_step() with what steps that move weights have in common: visit(row index,
  /// range, guard).
  template <typename Visit>
  void run_step(std::span<const StepRow> rows, Guard guard, const Visit& visit);
  void lamb_norms(std::span<const StepRow>, std::span<const LambScalars<double>>, const Guard&);
  void lamb_apply(std::span<const StepRow>, std::span<const LambScalars<double>>, const Guard&);
  LambNorms lamb_norms_of(std::int64_t row) const;

  const Workers& workers_;
  Chunks chunks_;
  std::vector<double> partial_;
  std::vector<LambNorms> lamb_partial_;
};

template <typename Trust>
void Lists::lamb(std::span<const StepRow> rows, std::span<LambScalars<double>> scalars,
                 const Guard& guard, const Trust& trust) {
  if (guard.skip != nullptr && *guard.skip != 0.0f) return;
  lamb_norms(rows, scalars, guard);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const LambNorms norms = lamb_norms_of(static_cast<std::int64_t>(i));
    scalars[i].rate = trust(i, norms.param, norms.update);
  }
  lamb_apply(rows, scalars, guard);
}

}  // namespace mezzo::kernels
