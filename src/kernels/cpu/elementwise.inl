// Scale, axpby and copies over one range. Scale and axpby return whether every result, as it stands
// in the output's type, is finite.

template <typename L>
static bool scale_lanes(const Input& in, const Output& out, Range range, double factor) {
  using S = typename L::S;
  const S limit = static_cast<S>(overflow_limit(out.dtype));
  const S by = static_cast<S>(factor);
  AllBelow<typename L::V> finite;
  for_range<L>(range, [&](auto at) {
    const auto y = at.load(in.data, in.dtype) * by;
    finite.add(y, limit);
    at.store(out.data, out.dtype, y);
  });
  return finite.holds();
}

template <typename L>
static bool axpby_lanes(const Input& x, const Input& y, const Output& out, Range range, double a,
                        double b) {
  using S = typename L::S;
  const S limit = static_cast<S>(overflow_limit(out.dtype));
  const S by_a = static_cast<S>(a);
  const S by_b = static_cast<S>(b);
  AllBelow<typename L::V> finite;
  for_range<L>(range, [&](auto at) {
    const auto sum = at.load(x.data, x.dtype) * by_a + at.load(y.data, y.dtype) * by_b;
    finite.add(sum, limit);
    at.store(out.data, out.dtype, sum);
  });
  return finite.holds();
}

static bool scale(const Input& in, const Output& out, Range range, double factor) {
  const bool wide = in.dtype == DType::kFloat64 || out.dtype == DType::kFloat64;
  return wide ? scale_lanes<DoubleLanes>(in, out, range, factor)
              : scale_lanes<FloatLanes>(in, out, range, factor);
}

static bool axpby(const Input& x, const Input& y, const Output& out, Range range, double a,
                  double b) {
  const bool wide =
      x.dtype == DType::kFloat64 || y.dtype == DType::kFloat64 || out.dtype == DType::kFloat64;
  return wide ? axpby_lanes<DoubleLanes>(x, y, out, range, a, b)
              : axpby_lanes<FloatLanes>(x, y, out, range, a, b);
}

template <typename L>
static void copy_lanes(const Input& in, const Output& out, Range range) {
  for_range<L>(range, [&](auto at) { at.store(out.data, out.dtype, at.load(in.data, in.dtype)); });
}

static void copy(const Input& in, const Output& out, Range range) {
  if (range.begin == range.end) return;  // memcpy takes no null, not even for nothing
  if (in.dtype == out.dtype) {
    const std::int64_t size = Part<FloatLanes>::size(in.dtype);
    __builtin_memcpy(static_cast<unsigned char*>(out.data) + range.begin * size,
                     static_cast<const unsigned char*>(in.data) + range.begin * size,
                     static_cast<std::size_t>((range.end - range.begin) * size));
  } else if (in.dtype == DType::kFloat64 || out.dtype == DType::kFloat64) {
    copy_lanes<DoubleLanes>(in, out, range);
  } else {
    copy_lanes<FloatLanes>(in, out, range);
  }
}

static void copy_as(const Input& in, void* out, CopyKind kind, Range range) {
  for_range<FloatLanes>(range,
                        [&](auto at) { at.store_copy(out, kind, at.load(in.data, in.dtype)); });
}
