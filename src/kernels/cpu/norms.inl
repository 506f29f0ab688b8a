// Layer and RMS normalisation for any mixture of types, doubles among them. A row is read from
// memory once: what follows finds it in the first or second level of cache.

/// A row of one matrix.
template <typename L>
struct RowOf {
  const void* data;
  DType dtype;
  std::int64_t begin;

  template <typename At>
  inline typename L::V load(At at) const {
    return at.shifted(begin).load(data, dtype);
  }
};

/// Adds up f(at) over a row with four sums, so that additions need not wait for each other.
template <typename L, typename F>
static inline typename L::S row_sum(std::int64_t columns, F&& f) {
  using V = typename L::V;
  constexpr std::int64_t kStep = L::kWidth;
  V sums[4] = {L::broadcast(0), L::broadcast(0), L::broadcast(0), L::broadcast(0)};
  std::int64_t i = 0;
  for (; i + 4 * kStep <= columns; i += 4 * kStep) {
    sums[0] = sums[0] + f(Whole<L>{i});
    sums[1] = sums[1] + f(Whole<L>{i + kStep});
    sums[2] = sums[2] + f(Whole<L>{i + 2 * kStep});
    sums[3] = sums[3] + f(Whole<L>{i + 3 * kStep});
  }
  for_range<L>({i, columns}, [&](auto at) { sums[0] = sums[0] + at.only(f(at)); });
  return lane_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <typename L>
static inline void norm_forward_row(const NormForward& n, std::int64_t row) {
  using V = typename L::V;
  using S = typename L::S;
  const std::int64_t columns = n.shape.columns;
  const std::int64_t begin = row * columns;
  RowOf<L> x{n.x.data, n.x.dtype, begin};
  if (n.residual.data != nullptr) {
    const RowOf<L> residual{n.residual.data, n.residual.dtype, begin};
    for_range<L>({0, columns}, [&](auto at) {
      at.shifted(begin).store(n.sum.data, n.sum.dtype, x.load(at) + residual.load(at));
    });
    x = {n.sum.data, n.sum.dtype, begin};
  }
  const S count = static_cast<S>(columns);
  const S mean =
      n.shape.rms ? S(0) : row_sum<L>(columns, [&](auto at) { return x.load(at); }) / count;
  const S variance = row_sum<L>(columns,
                                [&](auto at) {
                                  const V d = x.load(at) - mean;
                                  return d * d;
                                }) /
                     count;
  const S rstd = S(1) / kernels::square_root(variance + static_cast<S>(n.shape.eps));
  if (n.mean != nullptr) static_cast<S*>(n.mean)[row] = mean;
  if (n.rstd != nullptr) static_cast<S*>(n.rstd)[row] = rstd;
  for_range<L>({0, columns}, [&](auto at) {
    V y = (x.load(at) - mean) * rstd;
    if (n.weight.data != nullptr) y = y * at.load(n.weight.data, n.weight.dtype);
    if (n.bias.data != nullptr) y = y + at.load(n.bias.data, n.bias.dtype);
    at.shifted(begin).store(n.y.data, n.y.dtype, y);
  });
}

/// Away from zero, with its sign: what a weight is divided by.
static inline Vec away_from_zero(Vec w, float least) {
  const RawWords sign = words_of(w.v) & 0x80000000u;
  const Vec magnitude = largest(absolute(w), Vec{RawFloats{} + least});
  return {floats_of(words_of(magnitude.v) | sign)};
}
static inline double away_from_zero(double w, double least) {
  const double magnitude = kernels::largest(w < 0 ? -w : w, least);
  return __builtin_copysign(magnitude, w);
}

/// (x - mean) / deviation of a column, from the row that was normalised or from the result.
template <typename L>
struct NormalisedRow {
  using V = typename L::V;
  using S = typename L::S;
  const NormBackward& n;
  RowOf<L> x;
  S mean, rstd;

  template <typename At>
  inline V load(At at) const {
    const V value = x.load(at);
    if (!n.from_output) return (value - mean) * rstd;
    const V without_bias =
        n.bias.data == nullptr ? value : value - at.load(n.bias.data, n.bias.dtype);
    if (n.weight.data == nullptr) return without_bias;
    return without_bias / away_from_zero(at.load(n.weight.data, n.weight.dtype),
                                         static_cast<S>(n.smallest_weight));
  }
};

template <typename L>
static inline void norm_backward_row(const NormBackward& n, std::int64_t row, void* dweight,
                                     void* dbias) {
  using V = typename L::V;
  using S = typename L::S;
  const std::int64_t columns = n.shape.columns;
  const std::int64_t begin = row * columns;
  const RowOf<L> dy{n.dy.data, n.dy.dtype, begin};
  const S rstd = static_cast<const S*>(n.rstd)[row];
  const S mean = n.mean == nullptr ? S(0) : static_cast<const S*>(n.mean)[row];
  const NormalisedRow<L> normalised{n, {n.x.data, n.x.dtype, begin}, mean, rstd};
  const auto weighted = [&](auto at) {
    const V g = dy.load(at);
    return n.weight.data == nullptr ? g : g * at.load(n.weight.data, n.weight.dtype);
  };
  V with_normalised = L::broadcast(0);
  V alone = L::broadcast(0);
  for_range<L>({0, columns}, [&](auto at) {
    const V g = dy.load(at);
    const V hat = normalised.load(at);
    const V w = n.weight.data == nullptr ? g : g * at.load(n.weight.data, n.weight.dtype);
    with_normalised = with_normalised + at.only(w * hat);
    alone = alone + w;
    at.store_state(dweight, at.load_state(dweight) + g * hat);
    at.store_state(dbias, at.load_state(dbias) + g);
  });
  const S count = static_cast<S>(columns);
  const S along = lane_sum(with_normalised) / count;
  const S average = n.shape.rms ? S(0) : lane_sum(alone) / count;
  for_range<L>({0, columns}, [&](auto at) {
    V dx = (weighted(at) - normalised.load(at) * along - average) * rstd;
    if (n.dsum.data != nullptr) dx = dx + at.shifted(begin).load(n.dsum.data, n.dsum.dtype);
    at.shifted(begin).store(n.dx.data, n.dx.dtype, dx);
  });
}

static void norm_forward_any(const NormForward& n, Range rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    n.shape.wide ? norm_forward_row<DoubleLanes>(n, row) : norm_forward_row<FloatLanes>(n, row);
  }
}

static void norm_backward_any(const NormBackward& n, Range rows, void* dweight, void* dbias) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    n.shape.wide ? norm_backward_row<DoubleLanes>(n, row, dweight, dbias)
                 : norm_backward_row<FloatLanes>(n, row, dweight, dbias);
  }
}
