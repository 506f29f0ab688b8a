// Walks a range in whole vectors and a last piece; a loop's body is one lambda that takes either.

template <typename L>
struct Whole {
  using V = typename L::V;
  std::int64_t i;

  inline V load(const void* data, DType dtype) const { return L::load(data, dtype, i); }
  inline V load_state(const void* data) const { return L::load_state(data, i); }
  inline void store(void* data, DType dtype, V x) const { L::store(data, dtype, i, x); }
  inline void store_state(void* data, V x) const { L::store_state(data, i, x); }
  inline void store_copy(void* data, CopyKind kind, V x, bool past_cache = false) const {
    L::store_copy(data, kind, i, x, past_cache);
  }
  inline RawHalves load_halves(const void* data) const {
    return read<RawHalves>(at_index<std::uint16_t>(data, i));
  }
  inline void store_halves(void* data, RawHalves x) const {
    write(at_index<std::uint16_t>(data, i), x);
  }
  inline std::int64_t elements() const { return L::kWidth; }
  inline V only(V x) const { return x; }
  inline Whole shifted(std::int64_t by) const { return {i + by}; }
};

template <typename L>
struct Rest {
  using V = typename L::V;
  static constexpr DType kState = sizeof(typename L::S) == 8 ? DType::kFloat64 : DType::kFloat32;
  std::int64_t i;
  std::int64_t count;

  inline V load(const void* data, DType dtype) const {
    return Part<L>().load(data, dtype, i, count);
  }
  inline V load_state(const void* data) const { return load(data, kState); }
  inline void store(void* data, DType dtype, V x) const {
    Part<L>().store(data, dtype, i, count, x);
  }
  inline void store_state(void* data, V x) const { store(data, kState, x); }
  inline void store_copy(void* data, CopyKind kind, V x, bool /*past_cache*/ = false) const {
    Part<L>().store_copy(data, kind, i, count, x);
  }
  /// 16 bits an element, as they are.
  inline RawHalves load_halves(const void* data) const {
    RawHalves x{};
    __builtin_memcpy(&x, at_index<std::uint16_t>(data, i), static_cast<std::size_t>(count) * 2);
    return x;
  }
  inline void store_halves(void* data, RawHalves x) const {
    __builtin_memcpy(at_index<std::uint16_t>(data, i), &x, static_cast<std::size_t>(count) * 2);
  }
  inline std::int64_t elements() const { return count; }
  /// x with zeros behind the end.
  inline V only(V x) const {
    typename L::S kept[L::kWidth];
    Part<L>().store(kept, kState, 0, count, x);
    return Part<L>().load(kept, kState, 0, count);
  }
  inline Rest shifted(std::int64_t by) const { return {i + by, count}; }
};

template <typename L, typename Body>
static inline void for_range(Range range, Body&& body) {
  std::int64_t i = range.begin;
  for (; i + L::kWidth <= range.end; i += L::kWidth) body(Whole<L>{i});
  if (i < range.end) body(Rest<L>{i, range.end - i});
}

static inline float lane_sum(Vec x) {
  using Quarter = float __attribute__((vector_size(16)));
  constexpr int kQuarters = kVectorBytes / 16;
  Quarter quarters[kQuarters];
  __builtin_memcpy(quarters, &x, sizeof(quarters));
  for (int half = kQuarters / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) quarters[i] += quarters[i + half];
  }
  return (quarters[0][0] + quarters[0][2]) + (quarters[0][1] + quarters[0][3]);
}
static inline double lane_sum(double x) {
  return x;
}
