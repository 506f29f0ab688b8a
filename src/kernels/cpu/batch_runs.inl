// Runs and blocks of a batch, for batch normalisation. Two ways through memory: along a channel's
// places, which stand together, or across channels, a vector of them at a time. Either way a block
// is small enough to stay in the first level of cache, where it is read twice.

/// The last vector of a run that is at least one vector long: it begins before the end of what was
/// done already, which is done again with the same result, or left out of sums by only().
template <typename L>
struct Again : Whole<L> {
  std::int64_t fresh;  // lanes at the end that were not done before

  inline typename L::V only(typename L::V x) const {
    const std::int64_t skipped = L::kWidth - fresh;
    typename L::S lanes[L::kWidth];
    __builtin_memcpy(lanes, &x, sizeof(lanes));
    for (std::int64_t k = 0; k < L::kWidth; ++k) lanes[k] = k < skipped ? 0 : lanes[k];
    __builtin_memcpy(&x, lanes, sizeof(lanes));
    return x;
  }
  inline Again shifted(std::int64_t by) const { return {{this->i + by}, fresh}; }
};

/// A repeated pass must give the same both times.
template <typename L, typename Body>
static inline void for_run(std::int64_t count, Body&& body) {
  std::int64_t i = 0;
  for (; i + L::kWidth <= count; i += L::kWidth) body(Whole<L>{i});
  if constexpr (L::kWidth > 1) {
    if (i == count) return;
    if (count >= L::kWidth) {
      body(Again<L>{{count - L::kWidth}, count - i});
    } else {
      body(Rest<L>{i, count - i});
    }
  }
}

/// body(at, which): the run in turn for four sums, so that additions need not wait for each other.
template <typename L, typename Body>
static inline void for_run_in_four(std::int64_t count, Body&& body) {
  constexpr std::int64_t kStep = L::kWidth;
  std::int64_t i = 0;
  for (; i + 4 * kStep <= count; i += 4 * kStep) {
    body(Whole<L>{i}, 0);
    body(Whole<L>{i + kStep}, 1);
    body(Whole<L>{i + 2 * kStep}, 2);
    body(Whole<L>{i + 3 * kStep}, 3);
  }
  for (; i + kStep <= count; i += kStep) body(Whole<L>{i}, 1);
  if constexpr (kStep > 1) {
    if (i == count) return;
    if (count >= kStep) {
      body(Again<L>{{count - kStep}, count - i}, 2);
    } else {
      body(Rest<L>{i, count - i}, 2);
    }
  }
}

template <typename L>
struct FourSums {
  using V = typename L::V;
  V sums[4] = {L::broadcast(0), L::broadcast(0), L::broadcast(0), L::broadcast(0)};

  inline void add(int which, V x) { sums[which] = sums[which] + x; }
  inline double total() const {
    return static_cast<double>(lane_sum((sums[0] + sums[1]) + (sums[2] + sums[3])));
  }
};

/// Elements of a channel that stand in memory as runs of the same length, equally far apart.
struct Block {
  std::int64_t first;
  std::int64_t run;
  std::int64_t runs;
  std::int64_t apart;
};

constexpr std::int64_t kBlockElements = 2048;

/// A channel's places in blocks of whole samples, or of parts of one where a sample has many.
template <typename Visit>
static inline void for_each_block(const BatchShape& shape, Range samples, std::int64_t channel,
                                  Visit&& visit) {
  const std::int64_t apart = shape.channels * shape.places;
  const std::int64_t fitting = kBlockElements / shape.places;
  const std::int64_t at_once = fitting > 0 ? fitting : 1;
  for (std::int64_t n = samples.begin; n < samples.end; n += at_once) {
    const std::int64_t left = samples.end - n;
    const std::int64_t runs = left < at_once ? left : at_once;
    const std::int64_t first = n * apart + channel * shape.places;
    for (std::int64_t s = 0; s < shape.places; s += kBlockElements) {
      const std::int64_t rest = shape.places - s;
      visit(Block{first + s, rest < kBlockElements ? rest : kBlockElements, runs, apart});
    }
  }
}

constexpr std::int64_t kBlockRows = 64;
constexpr int kTile = 4;  // vectors of channels that are read together

/// Rows of innermost channels, a block of them at a time.
template <typename Visit>
static inline void for_each_row_block(Range samples, Visit&& visit) {
  for (std::int64_t row = samples.begin; row < samples.end; row += kBlockRows) {
    visit(Range{row, row + kBlockRows < samples.end ? row + kBlockRows : samples.end});
  }
}

/// kVectors vectors of channels; lanes before `skipped` were done before, from `lanes` on there are
/// none.
template <int kVectors, typename At>
struct Tile {
  static constexpr int kCount = kVectors;
  At at;
  std::int64_t skipped;
  std::int64_t lanes;
};

template <typename L, typename Visit>
static inline void for_each_tile(std::int64_t channels, Visit&& visit) {
  constexpr std::int64_t kWidth = L::kWidth;
  std::int64_t c = 0;
  for (; c + kTile * kWidth <= channels; c += kTile * kWidth) {
    visit(Tile<kTile, Whole<L>>{{c}, 0, kWidth});
  }
  for (; c + kWidth <= channels; c += kWidth) visit(Tile<1, Whole<L>>{{c}, 0, kWidth});
  if constexpr (kWidth > 1) {
    if (c == channels) return;
    if (channels >= kWidth) {
      visit(Tile<1, Whole<L>>{{channels - kWidth}, c - (channels - kWidth), kWidth});
    } else {
      visit(Tile<1, Rest<L>>{{c, channels - c}, 0, channels - c});
    }
  }
}
