// How a kernel looks at its arguments and holds what it casts: the tensors among the parameters of
// any operator.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "casting/cast.h"
#include "casting/decision.h"
#include "core/torch.h"

namespace mezzo::casting {

/// How far the layer goes with a floating-point tensor that is not dense.
inline Reach reach_of_unusual(c10::DispatchKeySet keys) {
  const bool known = keys.has_backend(c10::BackendComponent::CPUBit) ||
                     keys.has_backend(c10::BackendComponent::CUDABit);
  const bool sparse = keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Sparse)) ||
                      keys.has_any(c10::DispatchKeySet(c10::DispatchKey::SparseCsr));
  return known && sparse ? Reach::kSparse : Reach::kNone;
}

/// Adds one tensor to what was seen. Undefined, integer, complex and float8 tensors do not count.
inline void see(Operands& seen, const at::TensorBase& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const at::ScalarType type = c10::typeMetaToScalarType(impl.dtype());
  if (type == at::kFloat) {
    seen.float32 = true;
  } else if (const LowTypes low = LowTypes::of(type); low.any()) {
    seen.low = seen.low | low;
  } else {
    if (type == at::kDouble) seen.reach = Reach::kNone;
    return;
  }
  // The key set answers in a bit test what layout() and device() take calls for.
  constexpr c10::DispatchKeySet kDense(c10::DispatchKey::Dense);
  constexpr c10::DispatchKeySet kUsual =
      kDense | c10::DispatchKeySet(c10::BackendComponent::CPUBit);
  const c10::DispatchKeySet keys = impl.key_set();
  if (keys.has_all(kUsual)) return;
  const bool on_cpu = keys.has_backend(c10::BackendComponent::CPUBit);
  if (!on_cpu) seen.off_cpu = true;
  if (!keys.has_any(kDense) || !(on_cpu || keys.has_backend(c10::BackendComponent::CUDABit))) {
    seen.reach = std::max(seen.reach, reach_of_unusual(keys));
  }
}

/// How a parameter of type A takes part. The general case: it holds no tensor and is handed on as
/// it is.
template <typename A>
struct Operand {
  static void look(Operands&, const std::remove_reference_t<A>&) {}
  template <typename F>
  static void each(const std::remove_reference_t<A>&, F&&) {}
  const std::remove_reference_t<A>& value;
  Operand(const std::remove_reference_t<A>& argument, Casting&) : value(argument) {}
  decltype(auto) get() const { return value; }
};

template <>
struct Operand<const at::Tensor&> {
  static void look(Operands& seen, const at::Tensor& tensor) { see(seen, tensor); }
  template <typename F>
  static void each(const at::Tensor& tensor, F&& f) {
    f(tensor);
  }
  at::Tensor owned;
  const at::Tensor& used;
  C10_ALWAYS_INLINE Operand(const at::Tensor& tensor, Casting& casting)
      : owned(casting.needs(tensor) ? casting.apply(tensor) : at::Tensor()),
        used(owned.defined() ? owned : tensor) {}
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  const at::Tensor& get() const { return used; }
};

/// A tensor that the operator writes: it decides the type of the others and is handed on itself,
/// or a copy in float of which it gets the values afterwards.
template <>
struct Operand<at::Tensor&> {
  static void look(Operands& seen, const at::Tensor& tensor) {
    see(seen, tensor);
    if (tensor.defined() && at::isFloatingType(tensor.scalar_type()))
      seen.written = tensor.scalar_type();
  }
  template <typename F>
  static void each(const at::Tensor& tensor, F&& f) {
    f(tensor);
  }
  at::Tensor& written;
  mutable at::Tensor owned;
  Operand(at::Tensor& tensor, Casting& casting)
      : written(tensor), owned(casting.needs(tensor) ? casting.apply(tensor) : at::Tensor()) {}
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  at::Tensor& get() const { return owned.defined() ? owned : written; }
};

template <>
struct Operand<const std::optional<at::Tensor>&> {
  static void look(Operands& seen, const std::optional<at::Tensor>& tensor) {
    if (tensor) see(seen, *tensor);
  }
  template <typename F>
  static void each(const std::optional<at::Tensor>& tensor, F&& f) {
    if (tensor) f(*tensor);
  }
  const std::optional<at::Tensor>* original;
  std::optional<at::Tensor> owned;
  Operand(const std::optional<at::Tensor>& tensor, Casting& casting) : original(&tensor) {
    if (tensor && casting.needs(*tensor)) {
      owned = casting.apply(*tensor);
      original = &owned;
    }
  }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  const std::optional<at::Tensor>& get() const { return *original; }
};

template <>
struct Operand<at::TensorList> {
  static void look(Operands& seen, at::TensorList list) {
    for (const at::Tensor& tensor : list) see(seen, tensor);
  }
  template <typename F>
  static void each(at::TensorList list, F&& f) {
    for (const at::Tensor& tensor : list) f(tensor);
  }
  at::TensorList original;
  std::vector<at::Tensor> owned;
  Operand(at::TensorList list, Casting& casting) : original(list) {
    bool needed = false;
    for (const at::Tensor& tensor : list) needed = needed || casting.needs(tensor);
    if (!needed) return;
    owned.reserve(list.size());
    for (const at::Tensor& tensor : list)
      owned.push_back(casting.needs(tensor) ? casting.apply(tensor) : tensor);
    original = owned;
  }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  at::TensorList get() const { return original; }
};

template <>
struct Operand<const at::ITensorListRef&> {
  static void look(Operands& seen, const at::ITensorListRef& list) {
    each(list, [&seen](const at::Tensor& tensor) { see(seen, tensor); });
  }
  template <typename F>
  static void each(const at::ITensorListRef& list, F&& f) {
    // A step of the list's own iterator asks for its kind anew.
    if (list.isUnboxed()) {
      for (const at::Tensor& tensor : list.toUnboxed()) f(tensor);
    } else {
      for (const at::Tensor& tensor : list) f(tensor);
    }
  }
  const at::ITensorListRef* original;
  std::vector<at::Tensor> owned;
  std::optional<at::ITensorListRef> cast;
  Operand(const at::ITensorListRef& list, Casting& casting) : original(&list) {
    bool needed = false;
    each(list, [&](const at::Tensor& tensor) { needed = needed || casting.needs(tensor); });
    if (!needed) return;
    owned.reserve(list.size());
    for (const at::Tensor& tensor : list)
      owned.push_back(casting.needs(tensor) ? casting.apply(tensor) : tensor);
    cast.emplace(at::TensorList(owned));
    original = &*cast;
  }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  const at::ITensorListRef& get() const { return *original; }
};

/// The results of an operator that was computed in float, rounded to the low type. Integers and
/// what is not a tensor stay.
template <typename T>
void round_in_place(T& result, at::ScalarType low) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    if (result.defined() && result.scalar_type() == at::kFloat) result = converted(result, low);
  } else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) {
    for (at::Tensor& part : result) round_in_place(part, low);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([low](auto&... parts) { (round_in_place(parts, low), ...); }, result);
  }
}

}  // namespace mezzo::casting
