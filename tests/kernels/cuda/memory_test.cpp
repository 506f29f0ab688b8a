// Memory that lists keep on the device, and errors: only the emulation can be made to capture and
// to fail on demand.
#include "kernels/cuda/device.h"

namespace mezzo::kernels::cuda {
namespace {

using namespace testing_support;

class CudaMemory : public OnCuda {
 protected:
  void TearDown() override {
    mezzo_emulated::break_launches(false);
    mezzo_emulated::run_out_of_memory(false);
    mezzo_emulated::set_capturing(false);
  }
  int launches_of_check(const std::vector<Input>& in, List* list_to_use) {
    const DeviceNumber<float> found(0);
    const int before = mezzo_emulated::launches();
    expect(cuda().check(list_to_use, in.data(), static_cast<std::int64_t>(in.size()), found.data(),
                        nullptr));
    EXPECT_EQ(found.value(), 0);
    return mezzo_emulated::launches() - before;
  }
};

TEST_F(CudaMemory, DescriptorsTravelWhenTheListChangesOnly) {
  const DeviceArray a(Array::random(DType::kFloat32, 100, 1));
  const DeviceArray b(Array::random(DType::kFloat32, 100, 2));
  EXPECT_EQ(launches_of_check({a.in(), b.in()}, list()), 3);
  EXPECT_EQ(launches_of_check({a.in(), b.in()}, list()), 1);
  EXPECT_EQ(launches_of_check({b.in(), a.in()}, list()), 3);
  EXPECT_EQ(launches_of_check({b.in(), a.in()}, list()), 1);
}

TEST_F(CudaMemory, WhatAGraphUsesIsNeitherWrittenNorFreedBeforeTheListIs) {
  const int before = mezzo_emulated::pieces_of_memory();
  const DeviceArray a(Array::random(DType::kFloat32, 100, 1));
  const DeviceArray b(Array::random(DType::kFloat32, 100, 2));
  List* own = cuda().make_list(0);
  launches_of_check({a.in()}, own);
  const int with_one = mezzo_emulated::pieces_of_memory();
  mezzo_emulated::set_capturing(true);
  launches_of_check({a.in()}, own);  // in the graph now
  EXPECT_EQ(mezzo_emulated::pieces_of_memory(), with_one);
  EXPECT_EQ(launches_of_check({b.in()}, own), 3) << "a change is captured as well";
  EXPECT_EQ(mezzo_emulated::pieces_of_memory(), with_one + 1);
  mezzo_emulated::set_capturing(false);
  EXPECT_EQ(launches_of_check({a.in()}, own), 1) << "capturing wrote nothing yet";
  EXPECT_EQ(launches_of_check({b.in()}, own), 3);
  EXPECT_EQ(mezzo_emulated::pieces_of_memory(), with_one + 2) << "the graph's table stays";
  cuda().free_list(own);
  EXPECT_EQ(mezzo_emulated::pieces_of_memory(), before + 2);
}

TEST_F(CudaMemory, GraphsHaveScratchMemoryOfTheirOwn) {
  const DeviceArray a(Array::random(DType::kFloat32, 100, 1));
  const Input in = a.in();
  const DeviceNumber<double> total;
  std::unique_ptr<List, FreeList> own(cuda().make_list(0));
  const auto measure = [&] {
    expect(cuda().norm(own.get(), &in, 1, false, total.data(), nullptr, nullptr, nullptr));
    return mezzo_emulated::pieces_of_memory();
  };
  const int without_graph = measure();
  mezzo_emulated::set_capturing(true);
  EXPECT_EQ(measure(), without_graph + 1) << "a replay may run beside a call";
  EXPECT_EQ(measure(), without_graph + 2) << "and beside another graph";
  mezzo_emulated::set_capturing(false);
  EXPECT_EQ(measure(), without_graph + 2) << "calls have theirs";
}

TEST_F(CudaMemory, AFailureIsReportedAndTold) {
  const DeviceArray a(Array::random(DType::kFloat32, 100, 1));
  const Input in = a.in();
  const DeviceNumber<float> found(0);
  mezzo_emulated::break_launches(true);
  EXPECT_FALSE(cuda().check(list(), &in, 1, found.data(), nullptr));
  EXPECT_STREQ(cuda().error(), "emulated failure");
  mezzo_emulated::break_launches(false);
  EXPECT_EQ(launches_of_check({in}, list()), 3) << "what did not arrive travels again";
}

TEST_F(CudaMemory, WhatWasToldIsNotLaidToTheNextCall) {
  const DeviceArray a(Array::random(DType::kFloat32, 100, 1));
  const Input in = a.in();
  const DeviceNumber<float> found(0);
  mezzo_emulated::run_out_of_memory(true);
  EXPECT_FALSE(cuda().check(list(), &in, 1, found.data(), nullptr));
  EXPECT_STREQ(cuda().error(), "out of memory");
  mezzo_emulated::run_out_of_memory(false);
  EXPECT_TRUE(cuda().check(list(), &in, 1, found.data(), nullptr)) << "there is memory again";
}

TEST(CudaInterface, OfAnotherVersionIsRefused) {
  EXPECT_EQ(mezzo_cuda_interface(kInterfaceVersion + 1), nullptr);
}

}  // namespace
}  // namespace mezzo::kernels::cuda
