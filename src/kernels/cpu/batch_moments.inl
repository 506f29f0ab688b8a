// The moments of a part of a batch. A block's mean comes first, from deviations from one of its
// numbers; then its squared deviations from that mean; then it is merged into its channel.

/// Merges a block whose numbers have this sum of deviations from `near` and this sum of squared
/// deviations from `centre`, its mean as nearly as the type has it.
template <typename S>
static inline void merge_block(double elements, S near, double deviations, S centre, double squares,
                               const MergeWeights& weights, double& mean, double& m2) {
  const double of_block = static_cast<double>(near) + deviations / elements;
  const double off = static_cast<double>(centre) - of_block;
  merge_into(mean, m2, of_block, squares - off * off * elements, weights);
}

template <typename L>
static inline void moments_along(const Rows& x, const BatchShape& shape, Range samples,
                                 std::int64_t channel, const Moments& moments) {
  using V = typename L::V;
  using S = typename L::S;
  double count = 0;
  for_each_block(shape, samples, channel, [&](const Block& block) {
    const V start = Rest<L>{block.first, 1}.load(x.data, x.dtype);
    S near;
    __builtin_memcpy(&near, &start, sizeof(near));
    FourSums<L> deviations, squares;
    for (std::int64_t r = 0; r < block.runs; ++r) {
      const std::int64_t first = block.first + r * block.apart;
      for_run_in_four<L>(block.run, [&](auto at, int which) {
        deviations.add(which, at.only(at.shifted(first).load(x.data, x.dtype) - near));
      });
    }
    const double elements = static_cast<double>(block.run * block.runs);
    const S centre = near + static_cast<S>(deviations.total() / elements);
    for (std::int64_t r = 0; r < block.runs; ++r) {
      const std::int64_t first = block.first + r * block.apart;
      for_run_in_four<L>(block.run, [&](auto at, int which) {
        const V d = at.shifted(first).load(x.data, x.dtype) - centre;
        squares.add(which, at.only(d * d));
      });
    }
    merge_block(elements, near, deviations.total(), centre, squares.total(),
                merge_weights(count, elements), moments.mean[channel], moments.m2[channel]);
    count += elements;
  });
}

/// A vector as numbers.
template <typename L>
struct LanesOf {
  typename L::S lanes[L::kWidth];
  explicit inline LanesOf(typename L::V x) { __builtin_memcpy(lanes, &x, sizeof(lanes)); }
  inline typename L::S operator[](std::int64_t i) const { return lanes[i]; }
};

template <typename L, typename TileType>
static inline void moments_of_tile(const Rows& x, std::int64_t channels, Range rows,
                                   const TileType& tile, const MergeWeights& weights,
                                   const Moments& moments) {
  using V = typename L::V;
  using S = typename L::S;
  constexpr int kVectors = TileType::kCount;
  V near[kVectors], deviations[kVectors], centre[kVectors], squares[kVectors];
  const auto load = [&](std::int64_t row, int v) {
    return tile.at.shifted(row * channels + v * L::kWidth).load(x.data, x.dtype);
  };
  for (int v = 0; v < kVectors; ++v) {
    near[v] = load(rows.begin, v);
    deviations[v] = squares[v] = L::broadcast(0);
  }
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    for (int v = 0; v < kVectors; ++v) deviations[v] = deviations[v] + (load(row, v) - near[v]);
  }
  const double elements = static_cast<double>(rows.end - rows.begin);
  const S inverse = static_cast<S>(1 / elements);
  for (int v = 0; v < kVectors; ++v) centre[v] = near[v] + deviations[v] * inverse;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    for (int v = 0; v < kVectors; ++v) {
      const V d = load(row, v) - centre[v];
      squares[v] = squares[v] + d * d;
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const LanesOf<L> of_near(near[v]), of_deviations(deviations[v]), of_centre(centre[v]),
        of_squares(squares[v]);
    const std::int64_t c = tile.at.i + v * L::kWidth;
    for (std::int64_t i = tile.skipped; i < tile.lanes; ++i) {
      merge_block(elements, of_near[i], static_cast<double>(of_deviations[i]), of_centre[i],
                  static_cast<double>(of_squares[i]), weights, moments.mean[c + i],
                  moments.m2[c + i]);
    }
  }
}

template <typename L>
static inline void moments_lanes(const Rows& x, const BatchShape& shape, const BatchPart& part,
                                 const Moments& moments) {
  if (shape.places != 1) {
    for (std::int64_t c = part.channels.begin; c < part.channels.end; ++c) {
      moments_along<L>(x, shape, part.samples, c, moments);
    }
    return;
  }
  double count = 0;
  for_each_row_block(part.samples, [&](Range rows) {
    const double elements = static_cast<double>(rows.end - rows.begin);
    const MergeWeights weights = merge_weights(count, elements);
    for_each_tile<L>(shape.channels, [&](const auto& tile) {
      moments_of_tile<L>(x, shape.channels, rows, tile, weights, moments);
    });
    count += elements;
  });
}

static void batch_moments_of(const Rows& x, const BatchShape& shape, const BatchPart& part,
                             const Moments& moments) {
  x.dtype == DType::kFloat64 ? moments_lanes<DoubleLanes>(x, shape, part, moments)
                             : moments_lanes<FloatLanes>(x, shape, part, moments);
}
