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

template <typename L>
[[gnu::flatten]] static void adam_lanes(const StepRow& row, Range range,
                                        const AdamScalars<double>& given, const Guard& guard) {
  using V = typename L::V;
  const auto h = scalars<typename L::S>(given);
  const auto factor = gradient_factor(guard, h.grad_scale);
  const Copies copies(row, range, guard);
  for_range<L>(range, [&](auto at) {
    const V grad = at.stream(row.grad, row.grad_dtype) * factor;
    AdamElement<V> s{at.stream(row.param, row.param_dtype), at.stream_state(row.state[0]),
                     at.stream_state(row.state[1]), V{}};
    if (h.amsgrad) s.max_exp_avg_sq = at.stream_state(row.state[2]);
    s = adam_element(s, grad, h);
    at.store(row.param, row.param_dtype, s.param);
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
  for_range<L>(range, [&](auto at) {
    const V grad = at.stream(row.grad, row.grad_dtype) * factor;
    SgdElement<V> s{at.stream(row.param, row.param_dtype), V{}};
    if (h.momentum != 0 && !h.first) s.buffer = at.stream_state(row.state[0]);
    s = sgd_element(s, grad, h);
    at.store(row.param, row.param_dtype, s.param);
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
  for_range<L>(range, [&](auto at) {
    const V grad = at.stream(row.grad, row.grad_dtype) * factor;
    AdagradElement<V> s{at.stream(row.param, row.param_dtype), at.stream_state(row.state[0])};
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
  for_range<L>(range, [&](auto at) {
    const V grad = at.stream(row.grad, row.grad_dtype) * factor;
    LambElement<V> s{at.stream(row.param, row.param_dtype), at.stream_state(row.state[0]),
                     at.stream_state(row.state[1])};
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
  for_range<L>(range, [&](auto at) {
    LambElement<V> s{at.stream(row.param, row.param_dtype), at.stream_state(row.state[0]),
                     at.stream_state(row.state[1])};
    s.param = s.param - lamb_update(s, h) * h.rate;
    at.store(row.param, row.param_dtype, s.param);
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
  for_range<L>(range, [&](auto at) {
    const V grad = at.stream(row.grad, row.grad_dtype) * factor;
    NovogradElement<V> s{at.stream(row.param, row.param_dtype), at.stream_state(row.state[0])};
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
