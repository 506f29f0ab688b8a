// Split masters: the decision for one element over all kinds of floats, each kernel set against it,
// and the fused steps with split masters against the same steps with float ones, to the bit.
#include "kernels/split_master.h"

#include <gmock/gmock.h>

#include <bit>
#include <functional>

#include "kernels/multi_tensor.h"
#include "kernels/reference.h"

namespace mezzo::kernels {
namespace {

using namespace testing_support;

bool is_nan(std::uint32_t bits) {
  return (bits & 0x7fffffffu) > 0x7f800000u;
}

// The bits that come back of a float: its own, or the quiet NaN of its sign.
std::uint32_t kept(std::uint32_t bits) {
  return is_nan(bits) ? 0x7fc00000u | (bits & 0x80000000u) : bits;
}

// Every upper half with the lower halves around which something changes.
std::vector<std::uint32_t> edges() {
  std::vector<std::uint32_t> all;
  for (std::uint32_t high = 0; high <= 0xffff; ++high) {
    for (const std::uint32_t low :
         {0x0u, 0x1u, 0x2u, 0x7ffeu, 0x7fffu, 0x8000u, 0x8001u, 0x8002u, 0xfffeu, 0xffffu}) {
      all.push_back(high << 16 | low);
    }
  }
  return all;
}

TEST(SplitMaster, EveryFloatComesBackToTheBit) {
  constexpr std::uint64_t kStride = 61;  // a prime, so that all lower halves come up
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += kStride) {
    const auto master = static_cast<std::uint32_t>(bits);
    ASSERT_EQ(join_master(split_master(master)), kept(master)) << std::hex << master;
  }
  for (const std::uint32_t master : edges()) {
    ASSERT_EQ(join_master(split_master(master)), kept(master)) << std::hex << master;
  }
}

TEST(SplitMaster, TheWeightIsTheNearestToEven) {
  for (const std::uint32_t master : edges()) {
    const std::uint16_t weight = split_master(master).weight;
    if (is_nan(master)) {
      ASSERT_EQ(weight, 0x7fc0) << std::hex << master;
      continue;
    }
    const auto value = static_cast<double>(std::bit_cast<float>(master));
    ASSERT_EQ(weight, bits_of(value, DType::kBFloat16)) << std::hex << master;
  }
}

TEST(SplitMaster, BothTiesOfAnEvenWeightAreToldApart) {
  const SplitMaster above = split_master(0x3f808000u);
  const SplitMaster below = split_master(0x3f7f8000u);
  EXPECT_EQ(above.weight, 0x3f80);
  EXPECT_EQ(below.weight, 0x3f80);
  EXPECT_EQ(above.remainder, below.remainder);
  EXPECT_TRUE(above.tie_above);
  EXPECT_FALSE(below.tie_above);
}

// A weight that was written since stands for a number within half a unit of itself, and never for a
// NaN.
TEST(SplitMaster, AWeightThatWasWrittenSinceStandsForANumberBesideIt) {
  for (std::uint32_t weight = 0; weight <= 0xffff; ++weight) {
    for (const std::uint32_t low : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      for (const bool above : {false, true}) {
        const auto w = static_cast<std::uint16_t>(weight);
        const std::uint32_t joined = join_master({w, static_cast<std::uint16_t>(low), above});
        if (is_nan(weight << 16)) {
          ASSERT_TRUE(is_nan(joined));
          continue;
        }
        const auto distance = static_cast<std::int64_t>(joined) - (std::int64_t{weight} << 16);
        ASSERT_LE(std::abs(distance), 0x8000) << std::hex << weight << ' ' << low;
        ASSERT_FALSE(is_nan(joined)) << std::hex << weight << ' ' << low;
      }
    }
  }
}

// A split parameter with garbage where nothing was written yet.
struct SplitArray {
  std::vector<std::uint16_t> weight, remainder;
  std::vector<std::uint32_t> ties;

  explicit SplitArray(std::size_t count)
      : weight(count, 0xabcd),
        remainder(count, 0x8000),
        ties(static_cast<std::size_t>(words_of_ties(static_cast<std::int64_t>(count))),
             0xdeadbeef) {}
  StepRow row() {
    StepRow row;
    row.param = weight.data();
    row.param_dtype = DType::kBFloat16;
    row.remainder = remainder.data();
    row.ties = ties.data();
    row.count = static_cast<std::int64_t>(weight.size());
    return row;
  }
  SplitMaster at(std::size_t i) const {
    return {weight[i], remainder[i], (ties[i / 32] >> (i % 32) & 1u) != 0};
  }
};

class Splitting : public testing::TestWithParam<const KernelSet*> {
 protected:
  const KernelSet& set() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Splitting, testing::ValuesIn(usable_kernel_sets()),
                         [](const auto& row) { return std::string(row.param->name); });

TEST_P(Splitting, AgreesWithTheDecisionForOneElement) {
  const std::vector<std::uint32_t> bits = edges();
  const auto count = static_cast<std::int64_t>(bits.size());
  std::vector<float> masters(bits.size());
  std::memcpy(masters.data(), bits.data(), bits.size() * sizeof(float));
  SplitArray split(bits.size());
  // Ranges that begin and end anywhere.
  for (const Range range :
       {Range{0, 1}, Range{1, 18}, Range{18, 18}, Range{18, 1000}, Range{1000, count}}) {
    set().split_masters(split.row(), masters.data(), range);
  }
  std::vector<float> back(bits.size());
  set().join_masters(split.row(), back.data(), {0, 7});
  set().join_masters(split.row(), back.data(), {7, count});
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const SplitMaster expected = split_master(bits[i]);
    const SplitMaster got = split.at(i);
    ASSERT_EQ(got.weight, expected.weight) << std::hex << bits[i];
    ASSERT_EQ(got.remainder, expected.remainder) << std::hex << bits[i];
    if (got.remainder == kTie) {
      ASSERT_EQ(got.tie_above, expected.tie_above) << std::hex << bits[i];
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), kept(bits[i])) << std::hex << bits[i];
  }
}

TEST_P(Splitting, JoinsWhateverWasWrittenLikeTheDecisionForOneElement) {
  std::mt19937 engine(3);
  SplitArray split(65537);
  for (std::size_t i = 0; i < split.weight.size(); ++i) {
    split.weight[i] = static_cast<std::uint16_t>(i);
    const auto random = static_cast<std::uint32_t>(engine());
    split.remainder[i] = static_cast<std::uint16_t>(random % 3 == 0   ? 0x8000
                                                    : random % 7 == 0 ? 0
                                                                      : random);
  }
  for (std::uint32_t& word : split.ties) word = static_cast<std::uint32_t>(engine());
  std::vector<float> joined(split.weight.size());
  set().join_masters(split.row(), joined.data(), {0, 65537});
  for (std::size_t i = 0; i < joined.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(joined[i]), join_master(split.at(i))) << i;
  }
}

TEST_P(Splitting, WritesNothingOutsideItsRange) {
  SplitArray split(100);
  const SplitArray before = split;
  const std::vector<float> masters(100, std::bit_cast<float>(0x3f808000u));
  set().split_masters(split.row(), masters.data(), {3, 70});
  for (const std::size_t i : {0, 2, 70, 99}) {
    EXPECT_EQ(split.weight[i], before.weight[i]);
    EXPECT_EQ(split.remainder[i], before.remainder[i]);
    EXPECT_EQ(split.at(i).tie_above, before.at(i).tie_above);
  }
  EXPECT_TRUE(split.at(3).tie_above);
  EXPECT_TRUE(split.at(69).tie_above);
}

TEST(SplitMasters, ListsAreSharedBetweenThreadsLikeAllOthers) {
  class ThreeParts final : public Workers {
   public:
    void run(std::int64_t items, const Task& task) const override {
      for (std::int64_t part = 0; part < 3; ++part) task(items * part / 3, items * (part + 1) / 3);
    }
  };
  const ThreeParts workers;
  Lists lists(workers);
  constexpr std::size_t kCount = 70001;
  std::mt19937 engine(5);
  std::vector<float> masters(kCount);
  for (float& master : masters) {
    const auto random = static_cast<std::uint32_t>(engine());
    master = std::bit_cast<float>((random & 0x3fff0000u) | (random % 2 == 0 ? 0x8000u : 7u));
  }
  SplitArray split(kCount);
  std::vector<float> back(kCount);
  const StepRow row = split.row();
  const float* const from[] = {masters.data()};
  float* const to[] = {back.data()};
  lists.split_masters({&row, 1}, from);
  lists.join_masters({&row, 1}, to);
  EXPECT_EQ(std::memcmp(masters.data(), back.data(), kCount * sizeof(float)), 0);
}

struct SplitStep {
  const char* name;
  int states;
  std::function<void(const KernelSet&, const StepRow&, Range, const Guard&, int step)> run;
};

std::vector<SplitStep> split_steps() {
  const auto adam = [](bool amsgrad) {
    return [amsgrad](const KernelSet& set, const StepRow& row, Range range, const Guard& guard,
                     int) {
      set.adam(row, range,
               {0.9, 0.1, 0.999, 0.001, 3e-3, 18.3, 1e-8, 0.9999, 0.0, 1.0, amsgrad, false}, guard);
    };
  };
  return {{"Adam", 2, adam(false)},
          {"AdamWithAmsgrad", 3, adam(true)},
          {"Sgd", 0,
           [](const KernelSet& set, const StepRow& row, Range range, const Guard& guard, int) {
             set.sgd(row, range, {0.01, 0, 1, 0.01, 1, false, false, false}, guard);
           }},
          {"SgdWithMomentum", 1,
           [](const KernelSet& set, const StepRow& row, Range range, const Guard& guard, int step) {
             set.sgd(row, range, {0.01, 0.9, 1, 0.01, 1, true, false, step == 0}, guard);
           }},
          {"Lamb", 2,
           [](const KernelSet& set, const StepRow& row, Range range, const Guard& guard, int) {
             const LambScalars<double> h{0.9,  0.1,  0.999, 0.001, 3.69, 18.3,
                                         1e-6, 0.01, 0,     0.5,   0.02};
             set.lamb_moments(row, range, h, guard);
             set.lamb_apply(row, range, h, guard);
           }}};
}

// A parameter as a float with a bfloat16 copy, and split.
struct BothWays {
  std::vector<float> master;
  std::vector<std::uint16_t> copy;
  SplitArray split;
  std::vector<Array> states, split_states;
  StepRow row, split_row;

  BothWays(const KernelSet& set, const SplitStep& step, std::size_t count)
      : master(count), copy(count), split(count) {
    std::mt19937 engine(17);
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (std::size_t i = 0; i < count; ++i) {
      // Ties, as steps seldom leave them, and infinities and NaNs among the others.
      std::uint32_t bits = std::bit_cast<std::uint32_t>(uniform(engine));
      if (i % 5 == 0) bits = (bits & 0xffff0000u) | 0x8000u;
      if (i % 97 == 13) bits = 0x7f800000u;
      if (i % 97 == 14) bits = 0xffc00000u;
      if (i % 97 == 15) bits = 0x80000000u;
      master[i] = std::bit_cast<float>(bits);
    }
    const auto n = static_cast<std::int64_t>(count);
    for (int s = 0; s < step.states; ++s) {
      states.push_back(Array::random(DType::kFloat32, n, 30 + static_cast<unsigned>(s), 0.01, 0.1));
    }
    split_states = states;
    split_row = split.row();
    set.split_masters(split_row, master.data(), {0, n});
    row.param = master.data();
    row.copy = copy.data();
    row.copy_kind = CopyKind::kBFloat16;
    row.count = n;
    for (std::size_t s = 0; s < states.size(); ++s) {
      row.state[s] = states[s].data();
      split_row.state[s] = split_states[s].data();
    }
  }
  void give_gradient(const Array& gradient) {
    for (StepRow* each : {&row, &split_row}) {
      each->grad = gradient.data();
      each->grad_dtype = gradient.dtype();
    }
  }
  void expect_equal(const KernelSet& set, const std::string& where) const {
    std::vector<float> joined(master.size());
    set.join_masters(split_row, joined.data(), {0, row.count});
    for (std::size_t i = 0; i < master.size(); ++i) {
      ASSERT_EQ(split.weight[i], copy[i]) << where << ' ' << i;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(joined[i]),
                kept(std::bit_cast<std::uint32_t>(master[i])))
          << where << ' ' << i;
    }
    for (std::size_t s = 0; s < states.size(); ++s) {
      for (std::int64_t i = 0; i < row.count; ++i) {
        const double a = states[s][i];
        const double b = split_states[s][i];
        ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << where << ' ' << s << ' ' << i;
      }
    }
  }
};

class StepsOfSplitMasters : public testing::TestWithParam<std::tuple<const KernelSet*, SplitStep>> {
 protected:
  const KernelSet& set() const { return *std::get<0>(GetParam()); }
  const SplitStep& step() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Kernels, StepsOfSplitMasters,
                         testing::Combine(testing::ValuesIn(usable_kernel_sets()),
                                          testing::ValuesIn(split_steps())),
                         [](const auto& row) {
                           return std::string(std::get<0>(row.param)->name) + "_" +
                                  std::get<1>(row.param).name;
                         });

TEST_P(StepsOfSplitMasters, AreThoseOfFloatMastersToTheBit) {
  const float inv_scale = 0.5f;
  for (const DType grad_dtype : {DType::kBFloat16, DType::kFloat32}) {
    for (const std::size_t count : {0U, 1U, 31U, 1003U, 20000U}) {
      BothWays both(set(), step(), count);
      const auto n = static_cast<std::int64_t>(count);
      for (int i = 0; i < 6; ++i) {
        const Array gradient = Array::random(grad_dtype, n, 50 + static_cast<unsigned>(i));
        both.give_gradient(gradient);
        step().run(set(), both.row, {0, n}, {nullptr, &inv_scale}, i);
        step().run(set(), both.split_row, {0, n}, {nullptr, &inv_scale}, i);
        both.expect_equal(set(), step().name);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(StepsOfSplitMasters, DoNotDependOnHowATensorIsCut) {
  BothWays both(set(), step(), 1003);
  const Array gradient = Array::random(DType::kBFloat16, 1003, 9);
  both.give_gradient(gradient);
  step().run(set(), both.row, {0, 1003}, {}, 0);
  for (const Range range : {Range{0, 1}, Range{1, 18}, Range{18, 517}, Range{517, 1003}}) {
    step().run(set(), both.split_row, range, {}, 0);
  }
  both.expect_equal(set(), step().name);
}

TEST_P(StepsOfSplitMasters, MoveNothingWhereTheFlagIsSet) {
  const float skip = 1;
  BothWays both(set(), step(), 100);
  const SplitArray before = both.split;
  const Array gradient = Array::random(DType::kBFloat16, 100, 9);
  both.give_gradient(gradient);
  step().run(set(), both.split_row, {0, 100}, {&skip, nullptr}, 0);
  EXPECT_EQ(both.split.weight, before.weight);
  EXPECT_EQ(both.split.remainder, before.remainder);
  EXPECT_EQ(both.split.ties, before.ties);
  EXPECT_EQ(both.split_states, both.states);
}

}  // namespace
}  // namespace mezzo::kernels
