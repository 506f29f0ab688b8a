// Normalisation of a part of a batch, and the two halves of its backward.

/// The numbers of a channel, or of a vector of channels.
template <typename L>
struct ChannelNumbers {
  const typename L::S* data;
  std::int64_t channels;

  inline typename L::S one(int array, std::int64_t channel) const {
    return data[array * channels + channel];
  }
  template <typename At>
  inline typename L::V lanes(int array, At at) const {
    return at.load_state(data + array * channels);
  }
};
template <typename L>
static inline ChannelNumbers<L> numbers_of(const BatchCoefficients& numbers,
                                           std::int64_t channels) {
  return {static_cast<const typename L::S*>(numbers.data), channels};
}

/// body(place in memory, numbers) for every vector of a part, where numbers(array) are a channel's
/// or those of a vector of channels. Its results may be written twice.
template <typename L, typename Body>
static inline void for_each_vector(const BatchShape& shape, const BatchPart& part,
                                   const BatchCoefficients& coefficients, Body&& body) {
  const ChannelNumbers<L> numbers = numbers_of<L>(coefficients, shape.channels);
  for (std::int64_t n = part.samples.begin; n < part.samples.end; ++n) {
    if (shape.places == 1) {
      for_run<L>(shape.channels, [&](auto at) {
        body(at.shifted(n * shape.channels), [&](int array) { return numbers.lanes(array, at); });
      });
      continue;
    }
    for (std::int64_t c = part.channels.begin; c < part.channels.end; ++c) {
      const std::int64_t first = (n * shape.channels + c) * shape.places;
      for_run<L>(shape.places, [&](auto at) {
        body(at.shifted(first), [&](int array) { return numbers.one(array, c); });
      });
    }
  }
}

template <typename L>
static void normalise_lanes(const BatchNormalise& norm, const BatchPart& part,
                            const BatchCoefficients& coefficients) {
  using V = typename L::V;
  for_each_vector<L>(norm.shape, part, coefficients, [&](auto at, auto number) {
    V y = batch_norm_element(at.load(norm.x.data, norm.x.dtype), number(0), number(1), number(2));
    if (norm.residual.data != nullptr) {
      y = y + at.load(norm.residual.data, norm.residual.dtype);
    }
    if (norm.relu) y = rectified(y);
    at.store(norm.y.data, norm.y.dtype, y);
  });
}

/// dy, where a relu let it through.
template <typename L, typename At>
static inline typename L::V gradient_at(const BatchGradient& g, At at) {
  const typename L::V dy = at.load(g.dy.data, g.dy.dtype);
  if (g.relu_output.data == nullptr) return dy;
  return rectified_gradient(at.load(g.relu_output.data, g.relu_output.dtype), dy);
}

template <typename L>
static inline void reduce_along(const BatchGradient& g, Range samples, std::int64_t channel,
                                typename L::S centre, double* sum_dy, double* sum_dy_xmu) {
  for_each_block(g.shape, samples, channel, [&](const Block& block) {
    FourSums<L> alone, with_x;
    for (std::int64_t r = 0; r < block.runs; ++r) {
      const std::int64_t first = block.first + r * block.apart;
      for_run_in_four<L>(block.run, [&](auto at, int which) {
        const auto there = at.shifted(first);
        const typename L::V dy = gradient_at<L>(g, there);
        alone.add(which, at.only(dy));
        with_x.add(which, at.only(dy * (there.load(g.x.data, g.x.dtype) - centre)));
      });
    }
    sum_dy[channel] += alone.total();
    sum_dy_xmu[channel] += with_x.total();
  });
}

template <typename L, typename TileType>
static inline void reduce_tile(const BatchGradient& g, Range rows, const TileType& tile,
                               const ChannelNumbers<L>& numbers, double* sum_dy,
                               double* sum_dy_xmu) {
  using V = typename L::V;
  constexpr int kVectors = TileType::kCount;
  V centre[kVectors], alone[kVectors], with_x[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    centre[v] = numbers.lanes(0, tile.at.shifted(v * L::kWidth));
    alone[v] = with_x[v] = L::broadcast(0);
  }
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    for (int v = 0; v < kVectors; ++v) {
      const auto there = tile.at.shifted(row * g.shape.channels + v * L::kWidth);
      const V dy = gradient_at<L>(g, there);
      alone[v] = alone[v] + dy;
      with_x[v] = with_x[v] + dy * (there.load(g.x.data, g.x.dtype) - centre[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const LanesOf<L> of_alone(alone[v]), of_with_x(with_x[v]);
    const std::int64_t c = tile.at.i + v * L::kWidth;
    for (std::int64_t i = tile.skipped; i < tile.lanes; ++i) {
      sum_dy[c + i] += static_cast<double>(of_alone[i]);
      sum_dy_xmu[c + i] += static_cast<double>(of_with_x[i]);
    }
  }
}

template <typename L>
static void reduce_lanes(const BatchGradient& g, const BatchPart& part,
                         const BatchCoefficients& coefficients, double* sum_dy,
                         double* sum_dy_xmu) {
  const ChannelNumbers<L> numbers = numbers_of<L>(coefficients, g.shape.channels);
  if (g.shape.places != 1) {
    for (std::int64_t c = part.channels.begin; c < part.channels.end; ++c) {
      reduce_along<L>(g, part.samples, c, numbers.one(0, c), sum_dy, sum_dy_xmu);
    }
    return;
  }
  for_each_row_block(part.samples, [&](Range rows) {
    for_each_tile<L>(g.shape.channels, [&](const auto& tile) {
      reduce_tile<L>(g, rows, tile, numbers, sum_dy, sum_dy_xmu);
    });
  });
}

template <typename L>
static void apply_lanes(const BatchBackwardApply& apply, const BatchPart& part,
                        const BatchCoefficients& coefficients) {
  using V = typename L::V;
  const BatchGradient& g = apply.gradient;
  for_each_vector<L>(g.shape, part, coefficients, [&](auto at, auto number) {
    const V dy = gradient_at<L>(g, at);
    if (apply.dresidual.data != nullptr) {
      at.store(apply.dresidual.data, apply.dresidual.dtype, dy);
    }
    if (apply.dx.data == nullptr) return;
    at.store(apply.dx.data, apply.dx.dtype,
             batch_norm_gradient(dy, at.load(g.x.data, g.x.dtype), number(0), number(1), number(2),
                                 number(3)));
  });
}

static void batch_normalise_part(const BatchNormalise& norm, const BatchPart& part,
                                 const BatchCoefficients& numbers) {
  numbers.wide ? normalise_lanes<DoubleLanes>(norm, part, numbers)
               : normalise_lanes<FloatLanes>(norm, part, numbers);
}
static void batch_backward_reduce_part(const BatchGradient& g, const BatchPart& part,
                                       const BatchCoefficients& numbers, double* sum_dy,
                                       double* sum_dy_xmu) {
  numbers.wide ? reduce_lanes<DoubleLanes>(g, part, numbers, sum_dy, sum_dy_xmu)
               : reduce_lanes<FloatLanes>(g, part, numbers, sum_dy, sum_dy_xmu);
}
static void batch_backward_apply_part(const BatchBackwardApply& apply, const BatchPart& part,
                                      const BatchCoefficients& numbers) {
  numbers.wide ? apply_lanes<DoubleLanes>(apply, part, numbers)
               : apply_lanes<FloatLanes>(apply, part, numbers);
}
