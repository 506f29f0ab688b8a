#include "kernels/cuda_driver.h"

#include <gtest/gtest.h>

namespace mezzo::kernels {
namespace {

void* stream(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

TEST(CudaDriver, NamesItsDevicesAndTheirCapabilities) {
  const std::vector<CudaDevice> devices = CudaDriver(MEZZO_THREE_DEVICES).devices();
  ASSERT_EQ(devices.size(), 3U);
  EXPECT_EQ(devices[0].name, "Tesla P100");
  EXPECT_EQ(devices[1].name, "Tesla T4");
  EXPECT_EQ(devices[1].major, 7);
  EXPECT_EQ(devices[1].minor, 5);
  EXPECT_EQ(devices[2].major, 9);
}

TEST(CudaDriver, NumbersTheCaptureOfAStream) {
  const CudaDriver driver(MEZZO_THREE_DEVICES);
  EXPECT_NE(driver.capture_of(stream(3)), 0U);
  EXPECT_NE(driver.capture_of(stream(3)), driver.capture_of(stream(5)));
  EXPECT_EQ(driver.capture_of(stream(4)), 0U) << "nobody captures it";
  EXPECT_EQ(driver.capture_of(nullptr), 0U) << "the driver refuses to say";
}

TEST(CudaDriver, HasNothingToSayWhereItIsNotThere) {
  const CudaDriver driver("no_such_driver.so");
  EXPECT_TRUE(driver.devices().empty());
  EXPECT_EQ(driver.capture_of(stream(3)), 0U);
}

}  // namespace
}  // namespace mezzo::kernels
