// Loads and stores of Vec in every element type, and of parts of it at the end of an array.

static inline RawFloats widen_bfloat16(RawHalves b) {
  return floats_of(__builtin_convertvector(b, RawWords) << 16);
}
template <typename T>
static inline T read(const void* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
static inline void write(void* to, T value) {
  __builtin_memcpy(to, &value, sizeof(T));
}
template <typename T>
static inline const T* at_index(const void* data, std::int64_t i) {
  return static_cast<const T*>(data) + i;
}
template <typename T>
static inline T* at_index(void* data, std::int64_t i) {
  return static_cast<T*>(data) + i;
}

/// How loops over floats read and write: whole vectors of any element type.
struct FloatLanes {
  using V = Vec;
  using S = float;
  static constexpr int kWidth = kLanes;

  static inline V broadcast(S x) { return {RawFloats{} + x}; }

  static inline V load(const void* data, DType dtype, std::int64_t i) {
    if (dtype == DType::kFloat32) return {read<RawFloats>(at_index<float>(data, i))};
    const RawHalves low = read<RawHalves>(at_index<std::uint16_t>(data, i));
    return {dtype == DType::kBFloat16 ? widen_bfloat16(low) : widen_half(low)};
  }
  static inline V load_state(const void* data, std::int64_t i) {
    return {read<RawFloats>(at_index<float>(data, i))};
  }
  static inline void store(void* data, DType dtype, std::int64_t i, V x) {
    if (dtype == DType::kFloat32) {
      write(at_index<float>(data, i), x.v);
    } else {
      write(at_index<std::uint16_t>(data, i),
            dtype == DType::kBFloat16 ? narrow_bfloat16(x.v) : narrow_half(x.v));
    }
  }
  static inline void store_state(void* data, std::int64_t i, V x) {
    write(at_index<float>(data, i), x.v);
  }
  static inline void store_copy(void* data, CopyKind kind, std::int64_t i, V x,
                                bool past_cache = false) {
    const auto put = [&](auto value) {
      constexpr std::int64_t kEach = sizeof(value) / kLanes;
      void* const to = static_cast<char*>(data) + i * kEach;
      past_cache ? store_past_cache(to, value) : write(to, value);
    };
    switch (kind) {
      case CopyKind::kNone:
        return;
      case CopyKind::kFloat16:
        return put(narrow_half(x.v));
      case CopyKind::kBFloat16:
        return put(narrow_bfloat16(x.v));
      case CopyKind::kRoundedToFloat16:
        return put(widen_half(narrow_half(x.v)));
      case CopyKind::kRoundedToBFloat16:
        return put(widen_bfloat16(narrow_bfloat16(x.v)));
      case CopyKind::kFloat32:
        return put(x.v);
    }
  }
};

/// How loops over doubles do: one at a time.
struct DoubleLanes {
  using V = double;
  using S = double;
  static constexpr int kWidth = 1;

  static inline V broadcast(S x) { return x; }
  static inline V load(const void* data, DType dtype, std::int64_t i) {
    if (dtype == DType::kFloat64) return *at_index<double>(data, i);
    if (dtype == DType::kFloat32) return static_cast<double>(*at_index<float>(data, i));
    RawHalves low{};
    low[0] = *at_index<std::uint16_t>(data, i);
    return static_cast<double>(
        (dtype == DType::kBFloat16 ? widen_bfloat16(low) : widen_half(low))[0]);
  }
  static inline V load_state(const void* data, std::int64_t i) {
    return *at_index<double>(data, i);
  }
  static inline void store(void* data, DType dtype, std::int64_t i, V x) {
    if (dtype == DType::kFloat64) {
      *at_index<double>(data, i) = x;
      return;
    }
    const float single = static_cast<float>(x);
    if (dtype == DType::kFloat32) {
      *at_index<float>(data, i) = single;
      return;
    }
    const RawFloats lanes = RawFloats{} + single;
    *at_index<std::uint16_t>(data, i) =
        (dtype == DType::kBFloat16 ? narrow_bfloat16(lanes) : narrow_half(lanes))[0];
  }
  static inline void store_state(void* data, std::int64_t i, V x) {
    *at_index<double>(data, i) = x;
  }
  static inline void store_copy(void* data, CopyKind kind, std::int64_t i, V x,
                                bool /*past_cache*/ = false) {
    const float single = static_cast<float>(x);
    const RawFloats lanes = RawFloats{} + single;
    switch (kind) {
      case CopyKind::kNone:
        return;
      case CopyKind::kFloat16:
        return store(data, DType::kFloat16, i, x);
      case CopyKind::kBFloat16:
        return store(data, DType::kBFloat16, i, x);
      case CopyKind::kRoundedToFloat16:
        *at_index<float>(data, i) = widen_half(narrow_half(lanes))[0];
        return;
      case CopyKind::kRoundedToBFloat16:
        *at_index<float>(data, i) = widen_bfloat16(narrow_bfloat16(lanes))[0];
        return;
      case CopyKind::kFloat32:
        *at_index<float>(data, i) = single;
        return;
    }
  }
};

/// A piece of an array that is shorter than a vector, in a vector's worth of stack: it goes through
/// the same arithmetic as the rest, so that no element depends on where a range begins or ends.
template <typename L>
struct Part {
  unsigned char bytes[64];

  static inline std::int64_t size(DType dtype) {
    return dtype == DType::kFloat64 ? 8 : dtype == DType::kFloat32 ? 4 : 2;
  }
  inline typename L::V load(const void* data, DType dtype, std::int64_t i, std::int64_t count) {
    __builtin_memset(bytes, 0, sizeof(bytes));
    const std::int64_t size_of_one = size(dtype);
    __builtin_memcpy(bytes, static_cast<const unsigned char*>(data) + i * size_of_one,
                     static_cast<std::size_t>(count * size_of_one));
    return L::load(bytes, dtype, 0);
  }
  inline void store(void* data, DType dtype, std::int64_t i, std::int64_t count, typename L::V x) {
    const std::int64_t size_of_one = size(dtype);
    L::store(bytes, dtype, 0, x);
    __builtin_memcpy(static_cast<unsigned char*>(data) + i * size_of_one, bytes,
                     static_cast<std::size_t>(count * size_of_one));
  }
  inline void store_copy(void* data, CopyKind kind, std::int64_t i, std::int64_t count,
                         typename L::V x) {
    if (kind == CopyKind::kNone) return;
    const bool two_bytes = kind == CopyKind::kFloat16 || kind == CopyKind::kBFloat16;
    const std::int64_t size_of_one = two_bytes ? 2 : 4;
    L::store_copy(bytes, kind, 0, x);
    __builtin_memcpy(static_cast<unsigned char*>(data) + i * size_of_one, bytes,
                     static_cast<std::size_t>(count * size_of_one));
  }
};
