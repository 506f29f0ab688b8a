// Tells of every operator that a program calls in its forward pass, before and after it ran.
#pragma once

#include <ATen/record_function.h>

#include <vector>

#include "core/torch.h"
#include "insight/operator_call.h"

namespace mezzo::insight {

/// The listener. Inside both functions operators are not observed.
class CallListener {
 public:
  virtual ~CallListener() = default;
  /// The networks have the types of the step that follows.
  virtual void starts() {}
  /// The program calls an operator, outside of other operators; in a part of a network that is
  /// recomputed in the backward pass `again` is true.
  virtual void begins(const OperatorCall& call, bool again) = 0;
  /// The call that began last is over; its floating results.
  virtual void ended(const std::vector<at::Tensor>& results) = 0;
};

/// While it lives, a listener receives the operators of this thread, and those of the backward
/// pass that it starts. One at a time in a process.
class CallObserver {
 public:
  explicit CallObserver(CallListener& listener);
  ~CallObserver();
  /// From here on, of recomputed parts alone.
  void forward_is_over() noexcept;
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace mezzo::insight
