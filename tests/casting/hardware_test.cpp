#include "mezzo/hardware.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include <thread>

#include "casting/hardware.h"
#include "mezzo/error.h"

namespace mezzo {
namespace {

struct Restored {
  ~Restored() {
    set_compute_mode(at::kHalf, ComputeMode::kAuto);
    set_compute_mode(at::kBFloat16, ComputeMode::kAuto);
  }
};

TEST(ComputeMode, IsDecidedByAMeasurement) {
  for (const auto low : {at::kHalf, at::kBFloat16}) {
    const ComputeChoice choice = compute_choice(low);
    EXPECT_FALSE(choice.forced);
    EXPECT_GT(choice.float_rate, 0);
    EXPECT_FALSE(choice.why.empty());
    ASSERT_NE(choice.mode, ComputeMode::kAuto);
    if (choice.low_rate > 0) {
      EXPECT_EQ(choice.mode == ComputeMode::kEmulated, choice.low_over_float > 1.1) << low;
    } else {
      EXPECT_EQ(choice.mode, ComputeMode::kEmulated) << low;
    }
    EXPECT_EQ(compute_mode(low), choice.mode);
    EXPECT_EQ(emulated(low), choice.mode == ComputeMode::kEmulated);
  }
}

TEST(ComputeMode, CanBeForcedAndGivenBack) {
  const Restored restored;
  const ComputeMode measured = compute_mode(at::kHalf);
  for (const ComputeMode mode : {ComputeMode::kEmulated, ComputeMode::kNative}) {
    set_compute_mode(at::kHalf, mode);
    EXPECT_EQ(compute_mode(at::kHalf), mode);
    EXPECT_EQ(emulated(at::kHalf), mode == ComputeMode::kEmulated);
    EXPECT_TRUE(compute_choice(at::kHalf).forced);
  }
  set_compute_mode(at::kHalf, ComputeMode::kAuto);
  EXPECT_EQ(compute_mode(at::kHalf), measured);
  EXPECT_FALSE(compute_choice(at::kHalf).forced);
}

TEST(ComputeMode, IsOneForEachType) {
  const Restored restored;
  const ComputeMode measured = compute_mode(at::kBFloat16);
  set_compute_mode(
      at::kHalf, measured == ComputeMode::kNative ? ComputeMode::kEmulated : ComputeMode::kNative);
  EXPECT_EQ(compute_mode(at::kBFloat16), measured);
}

TEST(ComputeMode, ExistsForTheTwoLowTypesOnly) {
  for (const auto type : {at::kFloat, at::kDouble, at::kInt}) {
    EXPECT_THROW(set_compute_mode(type, ComputeMode::kEmulated), ConfigError) << type;
    EXPECT_THROW(compute_mode(type), ConfigError) << type;
    EXPECT_THROW(compute_choice(type), ConfigError) << type;
    EXPECT_FALSE(emulated(type)) << type;
  }
}

TEST(ComputeMode, TheMeasurementLeavesRandomNumbersAlone) {
  const at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state().clone();
  compute_choice(at::kHalf);
  EXPECT_TRUE(at::equal(before, generator.get_state()));
}

TEST(ComputeMode, ManyThreadsAgree) {
  std::vector<std::thread> threads;
  std::vector<ComputeMode> modes(4);
  for (auto& mode : modes) threads.emplace_back([&mode] { mode = compute_mode(at::kHalf); });
  for (std::thread& thread : threads) thread.join();
  for (const ComputeMode mode : modes) EXPECT_EQ(mode, modes[0]);
}

TEST(CudaDevices, OfGenerationsWithoutATypeSaySo) {
  const kernels::CudaDevice p100{"Tesla P100", 6, 0};
  const kernels::CudaDevice t4{"Tesla T4", 7, 5};
  const kernels::CudaDevice a100{"NVIDIA A100", 8, 0};
  EXPECT_EQ(name_of(t4, 1), "cuda:1 (Tesla T4, compute capability 7.5)");
  EXPECT_EQ(why_slow(t4, at::kBFloat16),
            "no bfloat16 in hardware before 8.0, so operators are slow or refused");
  EXPECT_EQ(why_slow(t4, at::kHalf), "");
  EXPECT_EQ(why_slow(p100, at::kHalf),
            "no tensor cores before 7.0, so float16 saves memory, but little time");
  for (const auto low : {at::kHalf, at::kBFloat16}) EXPECT_EQ(why_slow(a100, low), "");
}

TEST(HardwareReport, HasALineForEachType) {
  const Restored restored;
  set_compute_mode(at::kHalf, ComputeMode::kEmulated);
  set_compute_mode(at::kBFloat16, ComputeMode::kNative);
  EXPECT_THAT(hardware_report(),
              testing::MatchesRegex("float16: emulated in float32, forced by set_compute_mode "
                                    "\\([^\n]* GFLOP/s in matrix products\\)\n"
                                    "bfloat16: native, forced by set_compute_mode "
                                    "\\([^\n]* GFLOP/s in matrix products\\)\n"));
}

}  // namespace
}  // namespace mezzo
