// Layer and RMS normalisation of rows whose tensors are all float, all half or all bfloat16: the
// type is known to the compiler, and weights are converted once for many rows.

/// The widest row that these take; wider ones go through norms.inl.
constexpr std::int64_t kWidestRow = 8192;

template <DType T>
static inline std::int64_t bytes_of(std::int64_t count) {
  return count * (T == DType::kFloat32 ? 4 : 2);
}
template <DType T>
static inline const void* row_at(const void* data, std::int64_t begin) {
  return static_cast<const unsigned char*>(data) + bytes_of<T>(begin);
}
template <DType T>
static inline void* row_at(void* data, std::int64_t begin) {
  return static_cast<unsigned char*>(data) + bytes_of<T>(begin);
}

/// Weight or bias as floats, in `buffer` unless they are; `otherwise` if there is none.
static const float* affine_row(const Rows& given, float otherwise, std::int64_t columns,
                               float* buffer) {
  if (given.data != nullptr && given.dtype == DType::kFloat32) {
    return static_cast<const float*>(given.data);
  }
  const Vec constant = FloatLanes::broadcast(otherwise);
  for_range<FloatLanes>({0, columns}, [&](auto at) {
    at.store_state(buffer, given.data == nullptr ? constant : at.load(given.data, given.dtype));
  });
  return buffer;
}

/// The row that is normalised, as floats: x itself if it is float, else `buffer`, which is filled
/// on the way. `sum` becomes the sum of its elements.
template <DType T>
static inline const float* row_values(const void* x, std::int64_t columns, float* buffer,
                                      float& sum) {
  if constexpr (T == DType::kFloat32) {
    sum = row_sum<FloatLanes>(columns, [&](auto at) { return at.load_state(x); });
    return static_cast<const float*>(x);
  }
  sum = row_sum<FloatLanes>(columns, [&](auto at) {
    const Vec value = at.load(x, T);
    at.store_state(buffer, value);
    return value;
  });
  return buffer;
}

template <DType T>
[[gnu::flatten]] static void norm_forward_rows_of(const NormForward& n, Range rows) {
  const std::int64_t columns = n.shape.columns;
  alignas(64) float weight_buffer[kWidestRow], bias_buffer[kWidestRow], buffer[kWidestRow];
  const float* weight = affine_row(n.weight, 1, columns, weight_buffer);
  const float* bias = affine_row(n.bias, 0, columns, bias_buffer);
  const float count = static_cast<float>(columns);
  const float eps = static_cast<float>(n.shape.eps);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t begin = row * columns;
    const void* x = row_at<T>(n.x.data, begin);
    void* y = row_at<T>(n.y.data, begin);
    if (n.residual.data != nullptr) {
      const void* residual = row_at<T>(n.residual.data, begin);
      void* sum = row_at<T>(n.sum.data, begin);
      for_range<FloatLanes>(
          {0, columns}, [&](auto at) { at.store(sum, T, at.load(x, T) + at.load(residual, T)); });
      x = sum;
    }
    float sum = 0;
    const float* values = row_values<T>(x, columns, buffer, sum);
    const float mean = n.shape.rms ? 0 : sum / count;
    const float squares = row_sum<FloatLanes>(columns, [&](auto at) {
      const Vec d = at.load_state(values) - mean;
      return d * d;
    });
    const float rstd = 1 / kernels::square_root(squares / count + eps);
    if (n.mean != nullptr) static_cast<float*>(n.mean)[row] = mean;
    if (n.rstd != nullptr) static_cast<float*>(n.rstd)[row] = rstd;
    for_range<FloatLanes>({0, columns}, [&](auto at) {
      const Vec hat = (at.load_state(values) - mean) * rstd;
      at.store(y, T, hat * at.load_state(weight) + at.load_state(bias));
    });
  }
}

template <DType T>
[[gnu::flatten]] static void norm_backward_rows_of(const NormBackward& n, Range rows,
                                                   float* dweight, float* dbias) {
  const std::int64_t columns = n.shape.columns;
  const float count = static_cast<float>(columns);
  alignas(64) float buffer[kWidestRow];
  const float* weight = affine_row(n.weight, 1, columns, buffer);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t begin = row * columns;
    const void* x = row_at<T>(n.x.data, begin);
    const void* dy = row_at<T>(n.dy.data, begin);
    const float rstd = static_cast<const float*>(n.rstd)[row];
    const float mean = n.mean == nullptr ? 0 : static_cast<const float*>(n.mean)[row];
    Vec with_normalised = FloatLanes::broadcast(0);
    Vec alone = FloatLanes::broadcast(0);
    for_range<FloatLanes>({0, columns}, [&](auto at) {
      const Vec g = at.load(dy, T);
      const Vec hat = (at.load(x, T) - mean) * rstd;
      const Vec weighted = g * at.load_state(weight);
      with_normalised = with_normalised + at.only(weighted * hat);
      alone = alone + weighted;
      at.store_state(dweight, at.load_state(dweight) + g * hat);
      at.store_state(dbias, at.load_state(dbias) + g);
    });
    const float along = lane_sum(with_normalised) / count;
    const float average = n.shape.rms ? 0 : lane_sum(alone) / count;
    const void* dsum = n.dsum.data == nullptr ? nullptr : row_at<T>(n.dsum.data, begin);
    void* dx = row_at<T>(n.dx.data, begin);
    for_range<FloatLanes>({0, columns}, [&](auto at) {
      const Vec hat = (at.load(x, T) - mean) * rstd;
      Vec result = (at.load(dy, T) * at.load_state(weight) - hat * along - average) * rstd;
      if (dsum != nullptr) result = result + at.load(dsum, T);
      at.store(dx, T, result);
    });
  }
}

static bool forward_of_one_type(const NormForward& n) {
  const DType type = n.x.dtype;
  const bool residual =
      n.residual.data == nullptr || (n.residual.dtype == type && n.sum.dtype == type);
  return !n.shape.wide && n.shape.columns <= kWidestRow && n.y.dtype == type && residual;
}

static bool backward_of_one_type(const NormBackward& n) {
  const DType type = n.x.dtype;
  return !n.shape.wide && !n.from_output && n.shape.columns <= kWidestRow && n.dy.dtype == type &&
         n.dx.dtype == type && (n.dsum.data == nullptr || n.dsum.dtype == type);
}

static void norm_forward_rows(const NormForward& n, Range rows) {
  if (n.shape.columns == 0) return;
  if (!forward_of_one_type(n)) return norm_forward_any(n, rows);
  switch (n.x.dtype) {
    case DType::kFloat16:
      return norm_forward_rows_of<DType::kFloat16>(n, rows);
    case DType::kBFloat16:
      return norm_forward_rows_of<DType::kBFloat16>(n, rows);
    default:
      return norm_forward_rows_of<DType::kFloat32>(n, rows);
  }
}

static void norm_backward_rows(const NormBackward& n, Range rows, void* dweight, void* dbias) {
  if (n.shape.columns == 0) return;
  if (!backward_of_one_type(n)) return norm_backward_any(n, rows, dweight, dbias);
  float* const of_weight = static_cast<float*>(dweight);
  float* const of_bias = static_cast<float*>(dbias);
  switch (n.x.dtype) {
    case DType::kFloat16:
      return norm_backward_rows_of<DType::kFloat16>(n, rows, of_weight, of_bias);
    case DType::kBFloat16:
      return norm_backward_rows_of<DType::kBFloat16>(n, rows, of_weight, of_bias);
    default:
      return norm_backward_rows_of<DType::kFloat32>(n, rows, of_weight, of_bias);
  }
}
