// Split masters in and out of memory; see Note [Split masters] in split_master.h. Whole vectors go
// through a few integer operations, and ties, which are rare, through the decision for one element.

[[gnu::noinline, gnu::cold]] static Vec with_ties(Vec master, const StepRow& row, std::int64_t i,
                                                  std::int64_t count) {
  const auto* weights = static_cast<const std::uint16_t*>(row.param);
  const auto* remainders = static_cast<const std::uint16_t*>(row.remainder);
  RawWords bits = words_of(master.v);
  for (std::int64_t k = 0; k < count; ++k) {
    if (remainders[i + k] != kTie) continue;
    const bool above = (row.ties[(i + k) / 32] >> ((i + k) % 32) & 1u) != 0;
    bits[k] = join_master({weights[i + k], kTie, above});
  }
  return {floats_of(bits)};
}

[[gnu::noinline, gnu::cold]] static void note_ties(Vec master, const StepRow& row, std::int64_t i,
                                                   std::int64_t count) {
  const RawWords bits = words_of(master.v);
  for (std::int64_t k = 0; k < count; ++k) {
    const SplitMaster split = split_master(bits[k]);
    if (split.remainder != kTie) continue;
    std::uint32_t& word = row.ties[(i + k) / 32];
    const std::uint32_t bit = 1u << ((i + k) % 32);
    word = split.tie_above ? word | bit : word & ~bit;
  }
}

/// The master of a row: its float weight, or what weight and remainder stand for.
template <typename At>
static inline typename At::V load_master(const At& at, const StepRow& row) {
  if constexpr (sizeof(typename At::V) == sizeof(double)) {
    return at.load(row.param, row.param_dtype);
  } else {
    if (row.remainder == nullptr) return at.load(row.param, row.param_dtype);
    const RawWords weight = __builtin_convertvector(at.load_halves(row.param), RawWords);
    const RawWords low = __builtin_convertvector(at.load_halves(row.remainder), RawWords);
    const RawWords magnitude = weight & 0x7fffu;
    const RawWords is_below = (RawWords)(low > 0x8000u);
    const RawWords is_above = ~is_below & (RawWords)(low != 0u);
    const RawWords is_stale =
        (is_above & (RawWords)(magnitude >= 0x7f80u)) |
        (is_below & ((RawWords)(magnitude == 0u) | (RawWords)(magnitude > 0x7f80u)));
    const RawWords remainder = (low - (is_below & 0x10000u)) & ~is_stale;
    const Vec master{floats_of((weight << 16) + remainder)};
    const RawWords is_tie = (RawWords)(low == static_cast<std::uint32_t>(kTie));
    return any_set(is_tie) ? with_ties(master, row, at.i, at.elements()) : master;
  }
}

template <typename At>
static inline void store_master(const At& at, const StepRow& row, typename At::V master) {
  if constexpr (sizeof(typename At::V) == sizeof(double)) {
    at.store(row.param, row.param_dtype, master);
  } else {
    if (row.remainder == nullptr) return at.store(row.param, row.param_dtype, master);
    const RawWords bits = words_of(master.v);
    const RawWords is_nan = (RawWords)((bits & 0x7fffffffu) > 0x7f800000u);
    const RawWords low = choose(is_nan, (bits >> 16) & 0x8000u, bits & 0xffffu);
    at.store_halves(row.param, narrow_bfloat16(master.v));
    at.store_halves(row.remainder, __builtin_convertvector(low, RawHalves));
    const RawWords is_tie = (RawWords)(low == static_cast<std::uint32_t>(kTie));
    if (any_set(is_tie)) note_ties(master, row, at.i, at.elements());
  }
}

[[gnu::flatten]] static void join_masters(const StepRow& row, float* masters, Range range) {
  for_range<FloatLanes>(range, [&](auto at) { at.store_state(masters, load_master(at, row)); });
}

[[gnu::flatten]] static void split_masters(const StepRow& row, const float* masters, Range range) {
  for_range<FloatLanes>(range, [&](auto at) { store_master(at, row, at.load_state(masters)); });
}
