// Sums of squares, largest magnitudes and finite checks over one range.

template <typename V>
struct SquareSum;

// Squares and their sum are doubles: the square of a finite float never overflows, so that a norm
// is finite exactly where every element is.
template <>
struct SquareSum<Vec> {
  RawDoubles low{}, high{};

  inline void add(Vec x) {
    RawHalfFloats halves[2];
    __builtin_memcpy(halves, &x, sizeof(halves));
    const RawDoubles a = __builtin_convertvector(halves[0], RawDoubles);
    const RawDoubles b = __builtin_convertvector(halves[1], RawDoubles);
    low += a * a;
    high += b * b;
  }
  inline double total() const {
    const RawDoubles sum = low + high;
    double result = 0;
    for (int i = 0; i < kLanes / 2; ++i) result += sum[i];
    return result;
  }
};

template <>
struct SquareSum<double> {
  double sum = 0;
  inline void add(double x) { sum += x * x; }
  inline double total() const { return sum; }
};

/// Were all |y| below a limit? NaN is not.
template <typename V>
struct AllBelow;

template <>
struct AllBelow<Vec> {
  RawWords good = ~RawWords{};
  inline void add(Vec y, float limit) { good &= (RawWords)(absolute(y).v < limit); }
  inline bool holds() const {
    std::uint32_t all = ~0u;
    for (int i = 0; i < kLanes; ++i) all &= good[i];
    return all != 0;
  }
};

template <>
struct AllBelow<double> {
  bool good = true;
  inline void add(double y, double limit) { good = good && (y < 0 ? -y : y) < limit; }
  inline bool holds() const { return good; }
};

/// The smallest magnitude that rounds to infinity in this type.
static inline double overflow_limit(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 65520.0;
    case DType::kBFloat16:
      return 0x1.ffp+127;
    case DType::kFloat32:
      return 0x1.ffffffp+127;
    default:
      return __builtin_inf();
  }
}

// Magnitudes of floating-point numbers order as their bits do, with NaN above infinity: one integer
// maximum answers "how large" and "is all finite".
template <typename Bits>
static inline Bits largest_bits(const void* data, Range range, Bits mask) {
  using Lanes [[gnu::vector_size(kVectorBytes)]] = Bits;
  constexpr std::int64_t kWidth = kVectorBytes / sizeof(Bits);
  // A page ahead: there the processor's own prefetchers stop.
  constexpr std::int64_t kAhead = 4096 / sizeof(Bits);
  const Bits* bits = static_cast<const Bits*>(data);
  Lanes largest{};
  std::int64_t i = range.begin;
  const auto take = [&](std::int64_t at) {
    __builtin_prefetch(bits + at + kAhead);
    const Lanes magnitude = read<Lanes>(bits + at) & mask;
    largest = magnitude > largest ? magnitude : largest;
  };
  // The loop itself costs as much as one of these.
  for (; i + 4 * kWidth <= range.end; i += 4 * kWidth) {
    take(i);
    take(i + kWidth);
    take(i + 2 * kWidth);
    take(i + 3 * kWidth);
  }
  for (; i + kWidth <= range.end; i += kWidth) take(i);
  Bits result = 0;
  for (std::int64_t lane = 0; lane < kWidth; ++lane)
    result = largest[lane] > result ? largest[lane] : result;
  for (; i < range.end; ++i) {
    const Bits magnitude = static_cast<Bits>(bits[i] & mask);
    result = magnitude > result ? magnitude : result;
  }
  return result;
}

template <typename Bits>
static bool all_below_bits(const void* data, Range range, Bits mask, Bits infinity) {
  constexpr std::int64_t kBlock = 16384 / sizeof(Bits);
  for (std::int64_t i = range.begin; i < range.end; i += kBlock) {
    const std::int64_t end = i + kBlock < range.end ? i + kBlock : range.end;
    if (largest_bits<Bits>(data, {i, end}, mask) >= infinity) return false;
  }
  return true;
}

static bool all_finite(const Input& in, Range range) {
  switch (in.dtype) {
    case DType::kFloat16:
      return all_below_bits<std::int16_t>(in.data, range, 0x7fff, 0x7c00);
    case DType::kBFloat16:
      return all_below_bits<std::int16_t>(in.data, range, 0x7fff, 0x7f80);
    case DType::kFloat32:
      return all_below_bits<std::int32_t>(in.data, range, 0x7fffffff, 0x7f800000);
    default:
      return all_below_bits<std::int64_t>(in.data, range, 0x7fffffffffffffff, 0x7ff0000000000000);
  }
}

static double max_magnitude(const Input& in, Range range) {
  if (in.dtype == DType::kFloat64) {
    const auto bits = largest_bits<std::int64_t>(in.data, range, 0x7fffffffffffffff);
    return read<double>(&bits);
  }
  if (in.dtype == DType::kFloat32) {
    const auto bits = largest_bits<std::int32_t>(in.data, range, 0x7fffffff);
    return static_cast<double>(read<float>(&bits));
  }
  const auto bits = largest_bits<std::int16_t>(in.data, range, 0x7fff);
  return DoubleLanes::load(&bits, in.dtype, 0);
}

template <typename L>
static double square_sum_lanes(const Input& in, Range range) {
  SquareSum<typename L::V> even, odd;
  std::int64_t i = range.begin;
  for (; i + 2 * L::kWidth <= range.end; i += 2 * L::kWidth) {
    even.add(L::load(in.data, in.dtype, i));
    odd.add(L::load(in.data, in.dtype, i + L::kWidth));
  }
  for_range<L>({i, range.end}, [&](auto at) { even.add(at.load(in.data, in.dtype)); });
  return even.total() + odd.total();
}

static double square_sum(const Input& in, Range range) {
  return in.dtype == DType::kFloat64 ? square_sum_lanes<DoubleLanes>(in, range)
                                     : square_sum_lanes<FloatLanes>(in, range);
}
