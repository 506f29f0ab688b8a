// The scope on the stack inside which operators are cast, and what the kernels ask it.
#pragma once

#include <array>
#include <bit>
#include <functional>
#include <string_view>

#include "casting/decision.h"
#include "core/torch.h"
#include "mezzo/policy.h"
#include "policy/compiled.h"

namespace mezzo::casting {

/// Told of each cast: the operator, the type it had, the type it gets. Called on the thread of the
/// operator.
using CastListener =
    std::function<void(std::string_view op, at::ScalarType from, at::ScalarType to)>;

class ShadowCache;

/// The thread's own way to the copies that a decision asks for. None: a decision that casts
/// nothing.
struct KnownShadows {
  Decision decision;
  ShadowCache* cache = nullptr;

  bool serves(const Decision& wanted) const {
    return std::bit_cast<std::uint16_t>(decision) == std::bit_cast<std::uint16_t>(wanted);
  }
};

/// The opener of a scope: the program, by an Autocast, or the call of a model.
enum class OpenedBy { kProgram, kModel };

/// The kernels' view of the innermost scope of their thread.
struct Frame {
  const Frame* previous = nullptr;
  const Policy* source = nullptr;          // what the scope was opened with
  const CompiledPolicy* policy = nullptr;  // the same, as the kernels read it; null: casts are off
  ScopeRules rules;
  int graph_task = -1;
  OpenedBy opened_by = OpenedBy::kProgram;
  const CastListener* listener = nullptr;
  bool keeps_weights = true;              // weights are cast once for many uses
  std::array<KnownShadows, 2> shadows{};  // the likelier first
  c10::DispatchKeySet below;              // what comes after the layer and all other autocasts

  /// Null: ask the registry each time.
  C10_ALWAYS_INLINE ShadowCache* shadows_for(const Decision& decision) const {
    if (shadows[0].serves(decision)) return shadows[0].cache;
    return shadows[1].serves(decision) ? shadows[1].cache : nullptr;
  }
};

/// A thread's settings of the layer's dispatch key.
struct KeyState {
  bool included = false;
  bool excluded = true;
  bool operator==(const KeyState&) const = default;
};

/// Switches the casting layer on for this thread until it is destroyed, also inside an operator
/// that runs with casts off because it is listed. Scopes nest, the inner one rules; they must be
/// destroyed in the reverse order on the thread that made them. A backward pass
/// that starts inside a scope runs with casts off; a scope that is opened inside a backward pass
/// (recomputation) casts.
///
/// TorchScript modules run unoptimized inside a scope that casts operators: the optimizer derives
/// backward passes of its own from a graph that has no casts, and these fail.
class Scope {
 public:
  [[nodiscard]] explicit Scope(const Policy& policy, Mode mode = Mode::kOperators,
                               const CastListener* listener = nullptr,
                               OpenedBy opened_by = OpenedBy::kProgram);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Policy policy_;
  Frame frame_;
  KeyState key_before_;
  bool scripts_were_optimized_;
};

/// Casts off for this thread until it is destroyed; nests with itself and with scopes. Emulation of
/// a low type stays on, since it changes no dtype.
class Disabled {
 public:
  [[nodiscard]] Disabled();
  ~Disabled();
  Disabled(const Disabled&) = delete;
  Disabled& operator=(const Disabled&) = delete;

 private:
  Frame frame_;
};

/// The frame whose rules hold for an operator called now on this thread; null: pass through. Null
/// as well in a backward pass that runs inside the scope, and on threads that inherited LibTorch's
/// thread-local state but not ours.
const Frame* active_frame() noexcept;

/// Is the innermost scope of this thread one that casts operators for a model? A model of its own
/// level that is called inside is not cast with it.
bool inside_model_call() noexcept;

/// The innermost frame of this thread, whatever runs; null outside all scopes.
const Frame* current_frame() noexcept;

}  // namespace mezzo::casting
