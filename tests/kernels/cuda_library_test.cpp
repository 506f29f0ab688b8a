#include "kernels/cuda_library.h"

#include <gmock/gmock.h>

namespace mezzo::kernels {
namespace {

/// Three devices of which CUDA says what a test wants.
struct Devices {
  static inline std::vector<cuda::Code> codes;
  static inline int asked = 0;

  static cuda::Interface functions() {
    cuda::Interface functions{};
    functions.device_count = [] { return static_cast<int>(codes.size()); };
    functions.code_for = [](int device) {
      ++asked;
      return codes[static_cast<std::size_t>(device)];
    };
    functions.error = [] { return "out of memory"; };
    return functions;
  }
};

TEST(DevicesWithCode, KeepWhatCudaIsSureOf) {
  Devices::codes = {cuda::Code::kThere, cuda::Code::kMissing, cuda::Code::kThere};
  Devices::asked = 0;
  const cuda::Interface functions = Devices::functions();
  const DevicesWithCode devices(functions);
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(devices.has(0));
    EXPECT_FALSE(devices.has(1));
  }
  EXPECT_EQ(Devices::asked, 2) << "the third was not touched";
  EXPECT_EQ(devices.last_error(), "");
  EXPECT_FALSE(devices.has(-1));
  EXPECT_FALSE(devices.has(3));
}

TEST(DevicesWithCode, AskAgainWhereCudaCouldNotSay) {
  Devices::codes = {cuda::Code::kUnknown};
  const cuda::Interface functions = Devices::functions();
  const DevicesWithCode devices(functions);
  EXPECT_FALSE(devices.has(0));
  EXPECT_EQ(devices.last_error(), "out of memory");
  Devices::codes = {cuda::Code::kThere};
  EXPECT_TRUE(devices.has(0));
}

}  // namespace
}  // namespace mezzo::kernels
