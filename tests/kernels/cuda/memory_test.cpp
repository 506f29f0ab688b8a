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
  List* own = cuda().make_list(0, nullptr);
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

TEST_F(CudaMemory, EachCaptureHasANumberOfItsOwn) {
  EXPECT_EQ(cuda().capture(nullptr), 0U);
  mezzo_emulated::set_capturing(true);
  const std::uint64_t first = cuda().capture(nullptr);
  EXPECT_NE(first, 0U);
  EXPECT_EQ(cuda().capture(nullptr), first);
  mezzo_emulated::set_capturing(false);
  EXPECT_EQ(cuda().capture(nullptr), 0U);
  mezzo_emulated::set_capturing(true);
  EXPECT_NE(cuda().capture(nullptr), 0U);
  EXPECT_NE(cuda().capture(nullptr), first);
}

TEST_F(CudaMemory, GraphsHaveScratchMemoryOfTheirOwn) {
  const DeviceArray a(Array::random(DType::kFloat32, 100, 1));
  const Input in = a.in();
  const DeviceNumber<double> total;
  std::unique_ptr<List, FreeList> own(cuda().make_list(0, nullptr));
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

/// An allocator that somebody else lends.
struct Lent {
  std::vector<void*> out;
  std::vector<Stream> last_users;
  bool is_short = false;

  Memory functions() {
    return {this,
            [](void* lent, std::size_t bytes, int, Stream) -> void* {
              auto& self = *static_cast<Lent*>(lent);
              void* memory =
                  self.is_short ? nullptr : std::aligned_alloc(64, (bytes + 63) / 64 * 64);
              if (memory != nullptr) self.out.push_back(memory);
              return memory;
            },
            [](void* lent, void* memory, int, Stream last) {
              auto& self = *static_cast<Lent*>(lent);
              EXPECT_EQ(std::erase(self.out, memory), 1U);
              self.last_users.push_back(last);
              std::free(memory);
            }};
  }
};

TEST_F(CudaMemory, ComesFromTheAllocatorThatIsLent) {
  const DeviceArray a(Array::random(DType::kFloat32, 100, 1));
  const Input in = a.in();
  const int before = mezzo_emulated::pieces_of_memory();
  Lent lent;
  const Memory memory = lent.functions();
  List* own = cuda().make_list(0, &memory);
  {
    const DeviceNumber<double> total;
    lent.is_short = true;
    EXPECT_FALSE(cuda().norm(own, &in, 1, false, total.data(), nullptr, nullptr, nullptr));
    EXPECT_STREQ(cuda().error(), "out of memory");
    lent.is_short = false;
    int stream = 0;
    expect(cuda().norm(own, &in, 1, false, total.data(), nullptr, nullptr, &stream));
    EXPECT_EQ(lent.out.size(), 2U) << "descriptors and scratch memory";
    cuda().free_list(own);
    EXPECT_THAT(lent.out, testing::IsEmpty());
    EXPECT_THAT(lent.last_users, testing::Each(&stream));
  }
  EXPECT_EQ(mezzo_emulated::pieces_of_memory(), before);
}

/// Two devices, of which the first has no context.
struct TwoDevices {
  static inline int current = 0;
  static inline std::vector<int> set;
  static inline bool first_has_context = false;

  static mezzo_emulated::Runtime functions() {
    mezzo_emulated::Runtime runtime;
    runtime.get_device = [](int* device) {
      *device = current;
      return 0;
    };
    runtime.set_device = [](int device) {
      set.push_back(current = device);
      return 0;
    };
    runtime.has_context = [](int device) { return device == 1 || first_has_context; };
    return runtime;
  }
};

TEST_F(CudaMemory, ACallMakesNoContextOnADeviceThatNobodyUses) {
  const mezzo_emulated::Runtime runtime = TwoDevices::functions();
  mezzo_emulated_set_runtime(&runtime);
  EXPECT_EQ(cuda().code_for(1), Code::kThere);
  EXPECT_EQ(TwoDevices::set, std::vector{1}) << "device 0 would get a context by being set";
  TwoDevices::first_has_context = true;
  TwoDevices::current = 0;
  TwoDevices::set.clear();
  EXPECT_EQ(cuda().code_for(1), Code::kThere);
  EXPECT_EQ(TwoDevices::set, (std::vector{1, 0}));
  mezzo_emulated_set_runtime(nullptr);
}

TEST_F(CudaMemory, CodeIsMissingWhereCudaSaysSoAlone) {
  mezzo_emulated::set_answer_on_code(cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(cuda().code_for(0), Code::kMissing);
  mezzo_emulated::set_answer_on_code(cudaErrorMemoryAllocation);
  EXPECT_EQ(cuda().code_for(0), Code::kUnknown);
  mezzo_emulated::set_answer_on_code(cudaSuccess);
  EXPECT_EQ(cuda().code_for(0), Code::kThere);
}

/// Notes which stream waits for an event that was recorded on which.
struct NotedEvents {
  static inline void* recorded = nullptr;
  static inline std::vector<std::pair<void*, void*>> waits;  // who, for whom
  static inline int query = 0;

  static mezzo_emulated::Runtime functions() {
    mezzo_emulated::Runtime runtime;
    runtime.record_event = [](void*, void* stream) {
      recorded = stream;
      return 0;
    };
    runtime.wait_for_event = [](void* stream, void*) {
      waits.emplace_back(stream, recorded);
      return 0;
    };
    runtime.query_event = [](void*) { return query; };
    return runtime;
  }
};

TEST_F(CudaMemory, AStreamWaitsForTheLastOneThatUsedTheList) {
  const DeviceArray a(Array::random(DType::kFloat32, 100, 1));
  const Input in = a.in();
  const DeviceNumber<float> found(0);
  const mezzo_emulated::Runtime runtime = NotedEvents::functions();
  mezzo_emulated_set_runtime(&runtime);
  int one = 0;
  int other = 0;
  const auto check = [&](int& stream) {
    const int before = mezzo_emulated::launches();
    expect(cuda().check(list(), &in, 1, found.data(), &stream));
    return mezzo_emulated::launches() - before;
  };
  check(one);
  check(one);
  EXPECT_THAT(NotedEvents::waits, testing::IsEmpty());
  check(other);
  using Waits = std::vector<std::pair<void*, void*>>;
  EXPECT_EQ(NotedEvents::waits, (Waits{{&other, &one}}));
  NotedEvents::query = cudaErrorNotReady;
  mezzo_emulated::set_capturing(true);
  EXPECT_EQ(check(one), 3) << "what another stream may still write is captured anew";
  NotedEvents::query = 0;
  EXPECT_EQ(check(one), 1) << "it is there";
  EXPECT_EQ(NotedEvents::waits.size(), 1U) << "a capture waits for nothing outside";
  mezzo_emulated::set_capturing(false);
  mezzo_emulated_set_runtime(nullptr);
}

TEST(CudaInterface, OfAnotherVersionIsRefused) {
  EXPECT_EQ(mezzo_cuda_interface(kInterfaceVersion + 1), nullptr);
}

}  // namespace
}  // namespace mezzo::kernels::cuda
