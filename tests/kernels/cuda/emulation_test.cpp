// The emulation itself: what it must catch, and a program's own run time below it.
#include <array>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "kernels/cuda/device.h"

namespace mezzo::kernels::cuda {
namespace {

using namespace testing_support;

/// Launches that wait in a queue.
struct Queue {
  static inline std::vector<std::function<void()>> waiting;
  static inline std::vector<void*> streams;
  static inline int error = 0;

  static int launch(void* stream, std::function<void()> run) {
    if (error != 0) return error;
    waiting.push_back(std::move(run));
    streams.push_back(stream);
    return 0;
  }
  static void run_all() {
    for (const auto& run : waiting) run();
  }
};

class EmulatedRuntime : public OnCuda {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    Queue::waiting.clear();
    Queue::streams.clear();
    Queue::error = 0;
    runtime_.launch = Queue::launch;
    mezzo_emulated_set_runtime(&runtime_);
  }
  void TearDown() override { mezzo_emulated_set_runtime(nullptr); }

  mezzo_emulated::Runtime runtime_;
};

TEST_F(EmulatedRuntime, QueuedLaunchesRunLaterOnAnotherThreadAndAgain) {
  const Array numbers = Array::random(DType::kFloat32, 9000, 1);
  const DeviceArray from(numbers);
  const DeviceArray to(Array(DType::kFloat32, 9000));
  const Input in = from.in();
  const Output out = to.out();
  int stream = 0;
  {
    const double factor = 2;  // an argument that is gone when the kernel runs
    expect(cuda().scale(list(), &in, &out, 1, factor, nullptr, nullptr, &stream));
  }
  EXPECT_EQ(to.read()[17], 0) << "nothing has run yet";
  EXPECT_EQ(Queue::streams, std::vector<void*>(3, &stream));
  std::thread(Queue::run_all).join();
  EXPECT_EQ(to.read()[17], 2 * numbers[17]);
  Queue::run_all();
  EXPECT_EQ(to.read()[17], 2 * numbers[17]);
}

TEST_F(EmulatedRuntime, ARefusedLaunchIsAnErrorOfTheCall) {
  const DeviceArray from(Array::random(DType::kFloat32, 10, 1));
  const Input in = from.in();
  const DeviceNumber<float> found(0);
  Queue::error = cudaErrorStreamCaptureUnsupported;
  EXPECT_FALSE(cuda().check(list(), &in, 1, found.data(), nullptr));
}

TEST_F(EmulatedRuntime, GridsOfTwoThreadsDoNotMix) {
  const DeviceArray of_a(Array::random(DType::kFloat32, 20001, 1));
  const DeviceArray of_b(Array::random(DType::kFloat32, 20001, 2));
  const DeviceArray to_a(Array(DType::kFloat32, 20001));
  const DeviceArray to_b(Array(DType::kFloat32, 20001));
  std::unique_ptr<List, FreeList> other(cuda().make_list(0));
  const auto queue = [&](List* with, const DeviceArray& from, const DeviceArray& to) {
    const Input in = from.in();
    const Output out = to.out();
    expect(cuda().copy(with, &in, &out, 1, nullptr));
    return std::exchange(Queue::waiting, {});
  };
  const auto first = queue(list(), of_a, to_a);
  const auto second = queue(other.get(), of_b, to_b);
  const auto run = [](const auto& launches) {
    for (const auto& launch : launches) launch();
  };
  std::thread beside(run, first);
  run(second);
  beside.join();
  EXPECT_EQ(to_a.read()[20000], of_a.read()[20000]);
  EXPECT_EQ(to_b.read()[20000], of_b.read()[20000]);
}

class Emulation : public testing::Test {
 protected:
  void TearDown() override { mezzo_emulated_set_order(1); }
};

TEST_F(Emulation, ASeedChoosesTheOrderOfThreadsAndBlocks) {
  std::vector<unsigned> order;
  const auto note = [&order] {
    order.push_back(mezzo_emulated::place().block.x * 4 + mezzo_emulated::place().thread.x);
  };
  const auto order_of = [&](unsigned seed) {
    mezzo_emulated_set_order(seed);
    order.clear();
    mezzo_emulated_launch(nullptr, 4, 4, note);
    return order;
  };
  const std::vector<unsigned> by_number = order_of(0);
  EXPECT_TRUE(std::is_sorted(by_number.begin(), by_number.end()));
  EXPECT_NE(order_of(1), by_number);
  EXPECT_NE(order_of(2), order_of(1));
  EXPECT_EQ(order_of(7), order_of(7));
  EXPECT_EQ(std::set(order.begin(), order.end()).size(), 16u);
}

TEST_F(Emulation, MemoryHoldsNoNumberAtFirst) {
  void* memory = nullptr;
  expect_done(cudaMalloc(&memory, 3 * sizeof(float)));
  EXPECT_TRUE(std::isnan(static_cast<float*>(memory)[2]));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
  expect_done(cudaFree(memory));
}

TEST_F(Emulation, EndsTheProgramThatTouchesMemoryBesideItsOwn) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto with = [](const auto& touch) {
    void* memory = nullptr;
    expect_done(cudaMalloc(&memory, 100));
    touch(static_cast<volatile unsigned char*>(memory));
    cudaFree(memory);
  };
  EXPECT_EXIT(with([](volatile unsigned char* bytes) { static_cast<void>(bytes[128]); }),
              testing::KilledBySignal(SIGSEGV), "");
  EXPECT_DEATH(with([](volatile unsigned char* bytes) { bytes[100] = 0; }), "wrote beside");
  EXPECT_DEATH(with([](volatile unsigned char* bytes) { bytes[-1] = 0; }), "wrote beside");
}

TEST_F(Emulation, RefusesGridsAndBlocksThatNoDeviceTakes) {
  const auto refuses = [](dim3 grid, dim3 block) {
    mezzo_emulated_launch(nullptr, grid, block, [] {});
    return cudaGetLastError() == cudaErrorInvalidConfiguration;
  };
  EXPECT_FALSE(refuses(1, 1024));
  EXPECT_TRUE(refuses(1, 1025));
  EXPECT_TRUE(refuses(0, 32));
  EXPECT_TRUE(refuses(1, 0));
  EXPECT_TRUE(refuses(0x80000000u, 32));
  EXPECT_TRUE(refuses(dim3(1, 65536), 32));
  EXPECT_TRUE(refuses(dim3(1, 1, 65536), 32));
}

}  // namespace
}  // namespace mezzo::kernels::cuda
