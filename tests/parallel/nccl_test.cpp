// The part that brings NCCL, opened by its path: a group of one, on a GPU. More ranks need more
// GPUs.
#include <torch/torch.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdio>

#include "parallel/nccl_part.h"
#include "parallel/store.h"
#include "support/cuda_places.h"

namespace mezzo::parallel {
namespace {

constexpr std::chrono::seconds kLimit{30};

std::string nccl_file() {
#ifdef MEZZO_NCCL_LIBRARY
  return MEZZO_NCCL_LIBRARY;
#else
  return {};
#endif
}

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    if (nccl_file().empty()) GTEST_SKIP() << "built without NCCL's header or LibTorch's CUDA part";
    if (!testing_cuda::why_no_gpu().empty()) GTEST_SKIP() << testing_cuda::why_no_gpu();
    std::string why;
    void* const library = platform::open_library(nccl_file(), &why);
    ASSERT_NE(library, nullptr) << why;
    entry_ = reinterpret_cast<MezzoNcclPart>(platform::find_symbol(library, "mezzo_nccl_part"));
    ASSERT_NE(entry_, nullptr);
    std::remove(path_.c_str());
  }
  void TearDown() override { std::remove(path_.c_str()); }

  // Connects a group of one.
  std::shared_ptr<Communicator> connected() {
    const NcclPart* const part = entry_(kNcclPartVersion);
    EngineOptions options;
    options.timeout = kLimit;
    StoreAddress address;
    address.path = path_;
    address.serve = true;
    options.store = open_store(address, kLimit);
    std::string why;
    const auto engine = part->make_engine(options, &why);
    EXPECT_NE(engine, nullptr) << why;
    return engine == nullptr ? nullptr : engine->connect("test", 0, 1);
  }

  MezzoNcclPart entry_ = nullptr;

 private:
  std::string path_ = testing::TempDir() + "mezzo_nccl_" + std::to_string(getpid());
};

TEST_F(Nccl, RefusesAnotherVersionsInterface) {
  ASSERT_NE(entry_(kNcclPartVersion), nullptr);
  EXPECT_EQ(entry_(kNcclPartVersion)->version, kNcclPartVersion);
  EXPECT_EQ(entry_(kNcclPartVersion + 1), nullptr);
}

TEST_F(Nccl, NamesTheGpu) {
  EXPECT_FALSE(entry_(kNcclPartVersion)->gpu_of(0).empty());
}

// Numbers that are there late: a collective that does not wait for its stream takes others.
at::Tensor late_numbers(const at::Device& device, double first) {
  const auto options = at::TensorOptions(device).dtype(at::kFloat);
  at::Tensor busy = torch::full({2048, 2048}, 1e-3, options);
  for (int i = 0; i < 50; ++i) busy = torch::mm(busy, busy).clamp(-1, 1);
  const at::Tensor numbers = torch::zeros({1 << 20}, options);
  numbers.add_(busy.sum().mul(0)).add_(torch::arange(1 << 20, options)).add_(first);
  return numbers;
}

at::Tensor expected_numbers(double first) {
  return torch::arange(1 << 20, at::kFloat).add(first);
}

void expect_all_operations(Communicator& one, const at::Device& device, double first) {
  const at::Tensor expected = expected_numbers(first);
  const std::vector<std::int64_t> all_of_it{1 << 20};
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    const at::Tensor reduced = late_numbers(device, first);
    one.all_reduce(reduced, op)->wait();
    EXPECT_TRUE(torch::equal(reduced.cpu(), expected));
  }
  const at::Tensor given = late_numbers(device, first);
  const at::Tensor gathered = torch::zeros_like(given);
  one.all_gather(gathered, given)->wait();
  EXPECT_TRUE(torch::equal(gathered.cpu(), expected));
  const at::Tensor sent = late_numbers(device, first);
  one.broadcast(sent, 0)->wait();
  EXPECT_TRUE(torch::equal(sent.cpu(), expected));
  const at::Tensor exchanged = torch::zeros_like(given);
  one.all_to_all(exchanged, all_of_it, late_numbers(device, first), all_of_it)->wait();
  EXPECT_TRUE(torch::equal(exchanged.cpu(), expected));
}

TEST_F(Nccl, AGroupOfOneRunsAllOperationsOnTwoStreams) {
  const auto one = connected();
  ASSERT_NE(one, nullptr);
  const at::Device device(at::kCUDA, 0);
  const c10::impl::VirtualGuardImpl streams(at::kCUDA);
  const c10::Stream first = streams.getStreamFromGlobalPool(device);
  const c10::Stream second = streams.getStreamFromGlobalPool(device);
  ASSERT_NE(first, second);
  for (int turn = 0; turn < 3; ++turn) {
    for (const c10::Stream& stream : {first, second}) {
      const c10::StreamGuard guard(stream);
      expect_all_operations(*one, device, stream == first ? 1 : 1000 + turn);
    }
  }
}

}  // namespace
}  // namespace mezzo::parallel
