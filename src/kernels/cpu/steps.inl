// The fused steps over one range of one parameter: unscale, update, copy, in one pass.

static inline bool skips(const Guard& guard) {
  return guard.skip != nullptr && *guard.skip != 0.0f;
}
template <typename S>
static inline S gradient_factor(const Guard& guard, S grad_scale) {
  return guard.inv_scale == nullptr ? grad_scale : grad_scale * static_cast<S>(*guard.inv_scale);
}

/// Where a step leaves the low-precision weights of a range.
class Copies {
 public:
  inline Copies(const StepRow& row, Range range, const Guard& guard)
      : data_(row.copy),
        kind_(row.copy_kind),
        past_cache_(guard.copies_past_cache && range.begin % kLanes == 0 &&
                    reinterpret_cast<std::uintptr_t>(row.copy) % kVectorBytes == 0) {}
  inline ~Copies() {
    if (past_cache_) end_stores_past_cache();
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  template <typename At, typename V>
  inline void store(const At& at, V weight) const {
    at.store_copy(data_, kind_, weight, past_cache_);
  }

 private:
  void* data_;
  CopyKind kind_;
  bool past_cache_;
};

/// The operands of a step for each element beside the weight.
struct Streams {
  bool grad;
  int states;
};

/// A row whose memory a loop asks for: element i of the loop is element i + shift of the row.
/// Asking reads nothing, so that addresses may lie outside the row, or be of a state that it lacks.
class Asked {
 public:
  inline Asked(const StepRow& row, std::int64_t shift)
      : param_(row.param, size(row.param_dtype), shift),
        grad_(row.grad, size(row.grad_dtype), shift) {
    if (row.remainder != nullptr) remainder_ = Stream(row.remainder, 2, shift);
    for (int s = 0; s < 3; ++s) state_[s] = Stream(row.state[s], sizeof(float), shift);
  }
  inline void ask(std::int64_t i, Streams streams) const {
    param_.ask(i);
    if (remainder_.each != 0) remainder_.ask(i);
    if (streams.grad) grad_.ask(i);
    for (int s = 0; s < streams.states; ++s) state_[s].ask(i);
  }

 private:
  static inline std::int64_t size(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }
  struct Stream {
    std::uintptr_t begin = 0;
    std::uintptr_t each = 0;
    inline Stream() = default;
    inline Stream(const void* memory, std::int64_t size, std::int64_t shift)
        : begin(reinterpret_cast<std::uintptr_t>(memory) +
                static_cast<std::uintptr_t>(shift * size)),
          each(static_cast<std::uintptr_t>(size)) {}
    inline void ask(std::int64_t i) const {
      // A number, not a pointer, since what is asked for may lie behind the memory's end.
      __builtin_prefetch(
          // NOLINTNEXTLINE(performance-no-int-to-ptr)
          reinterpret_cast<const void*>(begin + static_cast<std::uintptr_t>(i) * each));
    }
  };
  Stream param_, grad_, remainder_, state_[3];
};

/// for_range() over a row's memory that is not in the caches: asks for what comes later.
template <typename L, typename Body>
static inline void for_step(const StepRow& own, Range range, const Guard& guard, Streams streams,
                            Body&& body) {
  Ahead ahead = guard.ahead == nullptr ? Ahead{} : *guard.ahead;
  if constexpr (L::kWidth == 1) {
    for_range<L>(range, body);
    ahead.advance(range.end - range.begin);
  } else {
    std::int64_t i = range.begin;
    while (i + L::kWidth <= range.end) {
      // Up to where the cursor comes to another row. Behind the list it asks for what is read now.
      const bool any = ahead.row != ahead.end;
      const Asked asked(any ? *ahead.row : own, any ? ahead.element - i : 0);
      const std::int64_t from = i;
      std::int64_t stop = range.end;
      if (any && ahead.row->count - ahead.element < stop - i) {
        stop = i + ahead.row->count - ahead.element;
      }
      do {
        asked.ask(i, streams);
        body(Whole<L>{i});
        i += L::kWidth;
      } while (i < stop && i + L::kWidth <= range.end);
      ahead.advance(i - from);
    }
    if (i < range.end) {
      body(Rest<L>{i, range.end - i});
      ahead.advance(range.end - i);
    }
  }
  if (guard.ahead != nullptr) *guard.ahead = ahead;
}

template <typename L>
[[gnu::flatten]] static void adam_lanes(const StepRow& row, Range range,
                                        const AdamScalars<double>& given, const Guard& guard) {
  using V = typename L::V;
  const auto h = scalars<typename L::S>(given);
  const auto factor = gradient_factor(guard, h.grad_scale);
  const Copies copies(row, range, guard);
  for_step<L>(row, range, guard, {true, h.amsgrad ? 3 : 2}, [&](auto at) {
    const V grad = at.load(row.grad, row.grad_dtype) * factor;
    AdamElement<V> s{load_master(at, row), at.load_state(row.state[0]), at.load_state(row.state[1]),
                     V{}};
    if (h.amsgrad) s.max_exp_avg_sq = at.load_state(row.state[2]);
    s = adam_element(s, grad, h);
    store_master(at, row, s.param);
    at.store_state(row.state[0], s.exp_avg);
    at.store_state(row.state[1], s.exp_avg_sq);
    if (h.amsgrad) at.store_state(row.state[2], s.max_exp_avg_sq);
    copies.store(at, s.param);
  });
}

template <typename L>
[[gnu::flatten]] static void sgd_lanes(const StepRow& row, Range range,
                                       const SgdScalars<double>& given, const Guard& guard) {
  using V = typename L::V;
  const auto h = scalars<typename L::S>(given);
  const auto factor = gradient_factor(guard, h.grad_scale);
  const Copies copies(row, range, guard);
  for_step<L>(row, range, guard, {true, h.momentum != 0 && !h.first ? 1 : 0}, [&](auto at) {
    const V grad = at.load(row.grad, row.grad_dtype) * factor;
    SgdElement<V> s{load_master(at, row), V{}};
    if (h.momentum != 0 && !h.first) s.buffer = at.load_state(row.state[0]);
    s = sgd_element(s, grad, h);
    store_master(at, row, s.param);
    if (h.momentum != 0) at.store_state(row.state[0], s.buffer);
    copies.store(at, s.param);
  });
}

template <typename L>
[[gnu::flatten]] static void adagrad_lanes(const StepRow& row, Range range,
                                           const AdagradScalars<double>& given,
                                           const Guard& guard) {
  using V = typename L::V;
  const auto h = scalars<typename L::S>(given);
  const auto factor = gradient_factor(guard, h.grad_scale);
  const Copies copies(row, range, guard);
  for_step<L>(row, range, guard, {true, 1}, [&](auto at) {
    const V grad = at.load(row.grad, row.grad_dtype) * factor;
    AdagradElement<V> s{at.load(row.param, row.param_dtype), at.load_state(row.state[0])};
    s = adagrad_element(s, grad, h);
    at.store(row.param, row.param_dtype, s.param);
    at.store_state(row.state[0], s.sum);
    copies.store(at, s.param);
  });
}

template <typename L>
[[gnu::flatten]] static LambNorms lamb_moments_lanes(const StepRow& row, Range range,
                                                     const LambScalars<double>& given,
                                                     const Guard& guard) {
  using V = typename L::V;
  const auto h = scalars<typename L::S>(given);
  const auto factor = gradient_factor(guard, h.grad_scale);
  SquareSum<V> of_param, of_update;
  for_step<L>(row, range, guard, {true, 2}, [&](auto at) {
    const V grad = at.load(row.grad, row.grad_dtype) * factor;
    LambElement<V> s{load_master(at, row), at.load_state(row.state[0]),
                     at.load_state(row.state[1])};
    s = lamb_moments(s, grad, h);
    at.store_state(row.state[0], s.exp_avg);
    at.store_state(row.state[1], s.exp_avg_sq);
    of_param.add(s.param);
    of_update.add(at.only(lamb_update(s, h)));
  });
  return {of_param.total(), of_update.total()};
}

template <typename L>
[[gnu::flatten]] static void lamb_update_lanes(const StepRow& row, Range range,
                                               const LambScalars<double>& given,
                                               const Guard& guard) {
  using V = typename L::V;
  const auto h = scalars<typename L::S>(given);
  const Copies copies(row, range, guard);
  for_step<L>(row, range, guard, {false, 2}, [&](auto at) {
    LambElement<V> s{load_master(at, row), at.load_state(row.state[0]),
                     at.load_state(row.state[1])};
    s.param = s.param - lamb_update(s, h) * h.rate;
    store_master(at, row, s.param);
    copies.store(at, s.param);
  });
}

template <typename L>
[[gnu::flatten]] static void novograd_lanes(const StepRow& row, Range range,
                                            const NovogradScalars<double>& given,
                                            const Guard& guard) {
  using V = typename L::V;
  const auto h = scalars<typename L::S>(given);
  const auto factor = gradient_factor(guard, h.grad_scale);
  const Copies copies(row, range, guard);
  for_step<L>(row, range, guard, {true, 1}, [&](auto at) {
    const V grad = at.load(row.grad, row.grad_dtype) * factor;
    NovogradElement<V> s{at.load(row.param, row.param_dtype), at.load_state(row.state[0])};
    s = novograd_element(s, grad, h);
    at.store(row.param, row.param_dtype, s.param);
    at.store_state(row.state[0], s.exp_avg);
    copies.store(at, s.param);
  });
}

static inline bool is_double(const StepRow& row) {
  return row.param_dtype == DType::kFloat64;
}

static void adam(const StepRow& row, Range range, const AdamScalars<double>& h,
                 const Guard& guard) {
  if (skips(guard)) return;
  is_double(row) ? adam_lanes<DoubleLanes>(row, range, h, guard)
                 : adam_lanes<FloatLanes>(row, range, h, guard);
}
static void sgd(const StepRow& row, Range range, const SgdScalars<double>& h, const Guard& guard) {
  if (skips(guard)) return;
  is_double(row) ? sgd_lanes<DoubleLanes>(row, range, h, guard)
                 : sgd_lanes<FloatLanes>(row, range, h, guard);
}
static void adagrad(const StepRow& row, Range range, const AdagradScalars<double>& h,
                    const Guard& guard) {
  if (skips(guard)) return;
  is_double(row) ? adagrad_lanes<DoubleLanes>(row, range, h, guard)
                 : adagrad_lanes<FloatLanes>(row, range, h, guard);
}
static LambNorms lamb_moments_of(const StepRow& row, Range range, const LambScalars<double>& h,
                                 const Guard& guard) {
  if (skips(guard)) return {};
  return is_double(row) ? lamb_moments_lanes<DoubleLanes>(row, range, h, guard)
                        : lamb_moments_lanes<FloatLanes>(row, range, h, guard);
}
static void lamb_apply(const StepRow& row, Range range, const LambScalars<double>& h,
                       const Guard& guard) {
  if (skips(guard)) return;
  is_double(row) ? lamb_update_lanes<DoubleLanes>(row, range, h, guard)
                 : lamb_update_lanes<FloatLanes>(row, range, h, guard);
}
static void novograd(const StepRow& row, Range range, const NovogradScalars<double>& h,
                     const Guard& guard) {
  if (skips(guard)) return;
  is_double(row) ? novograd_lanes<DoubleLanes>(row, range, h, guard)
                 : novograd_lanes<FloatLanes>(row, range, h, guard);
}
