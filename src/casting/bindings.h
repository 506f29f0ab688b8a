// The operators that have an unboxed kernel, by LibTorch's own declarations. Only overloads
// that 2.11 to 2.15 all have; the table's other rows, and operators that users register, go through
// the boxed kernel.
#pragma once

#include <string>
#include <vector>

#include "casting/row.h"
#include "core/torch.h"

#include <ATen/core/boxing/KernelFunction.h>

namespace mezzo::casting {

template <typename Op, typename Schema, bool kGuards>
struct Kernel;

/// Collects what install_layer() registers.
class Binder {
 public:
  struct Binding {
    std::string name;      // "addmm"
    std::string overload;  // "out"
    Row* row;              // to be set before the key is switched on
    c10::KernelFunction kernel;
    bool guards;  // looks at scalars, as its row says
  };

  template <typename... Ops>
  void add() {
    (add_one<Ops, false>(), ...);
  }
  /// As above, for operators whose rows guard scalars.
  template <typename... Ops>
  void add_guarded() {
    (add_one<Ops, true>(), ...);
  }

  std::vector<Binding>& bindings() { return bindings_; }

 private:
  template <typename Op, bool kGuards>
  void add_one() {
    using Bound = Kernel<Op, typename Op::schema, kGuards>;
    bindings_.push_back({Op::name, Op::overload_name, &Bound::row,
                         c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(Bound::call)),
                         kGuards});
  }

  std::vector<Binding> bindings_;
};

void bind_matrix(Binder&);
void bind_convolution(Binder&);
void bind_pointwise(Binder&);
void bind_loss(Binder&);
void bind_guarded(Binder&);
void bind_sums(Binder&);

}  // namespace mezzo::casting
