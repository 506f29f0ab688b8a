// Lists of tensors through the CUDA kernels, against the same call on the processor.
#include <thread>

#include "bridge/multi_tensor.h"
#include "support/cuda_places.h"

namespace mezzo::bridge {
namespace {

using testing_cuda::KernelsAt;

class ListsOnCuda : public testing_cuda::AtPlaces {
 protected:
  std::vector<at::Tensor> there(const std::vector<at::Tensor>& tensors) const {
    std::vector<at::Tensor> result;
    for (const at::Tensor& tensor : tensors) result.push_back(tensor.to(device()).clone());
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Bridge, ListsOnCuda,
                         testing::Values(testing_cuda::Place::kEmulation,
                                         testing_cuda::Place::kGpu),
                         [](const auto& row) { return testing_cuda::name_of(row.param); });

// Dense ones of several layouts, and one with holes.
std::vector<at::Tensor> tensors(at::ScalarType type, std::uint64_t seed) {
  torch::manual_seed(seed);
  std::vector<at::Tensor> result{
      torch::randn({17, 33}), torch::randn({0, 3}), torch::randn({}),
      torch::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast), torch::randn({9001})};
  for (at::Tensor& tensor : result) tensor = tensor.to(type);
  result.push_back(torch::randn({6, 8}).to(type).slice(1, 0, 8, 2));
  return result;
}

// Which of the two products of a sum is rounded is the compiler's choice: half a unit of either.
void expect_near(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(torch::allclose(got[i].cpu().to(at::kDouble), expected[i].to(at::kDouble), 1e-6,
                                2e-6, /*equal_nan=*/true))
        << i;
  }
}

TEST_P(ListsOnCuda, ScaleAxpbyAndCopyAgreeWithTheProcessor) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    const auto x = tensors(type, 1);
    const auto y = tensors(at::kFloat, 2);
    auto out = tensors(at::kFloat, 3);
    const auto x_there = there(x);
    const auto y_there = there(y);
    auto out_there = there(out);
    EXPECT_TRUE(scale("test", x, out, 0.25));
    {
      const KernelsAt kernels(place());
      EXPECT_TRUE(scale("test", x_there, out_there, 0.25));
    }
    expect_near(out_there, out);
    EXPECT_TRUE(axpby("test", x, y, out, 2, -3));
    {
      const KernelsAt kernels(place());
      EXPECT_TRUE(axpby("test", x_there, y_there, out_there, 2, -3));
    }
    expect_near(out_there, out);
    copy("test", x, out);
    {
      const KernelsAt kernels(place());
      copy("test", x_there, out_there);
    }
    expect_near(out_there, out);
  }
}

TEST_P(ListsOnCuda, NormsAndTheCheckAgreeWithTheProcessor) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kDouble}) {
    for (const kernels::Norm which : {kernels::Norm::kTwo, kernels::Norm::kMax}) {
      const auto x = tensors(type, 4);
      const auto x_there = there(x);
      std::vector<double> each;
      std::vector<double> each_there;
      const double total = norm("test", x, which, &each);
      const KernelsAt kernels(place());
      EXPECT_NEAR(norm("test", x_there, which, &each_there), total, 1e-6 * total);
      for (std::size_t i = 0; i < each.size(); ++i) {
        EXPECT_NEAR(each_there[i], each[i], 1e-6 * (1 + each[i]));
      }
      EXPECT_TRUE(all_finite("test", x_there));
      x_there[4].fill_(0)[9000].fill_(NAN);
      EXPECT_FALSE(all_finite("test", x_there));
      EXPECT_FALSE(scale("test", x_there, there(x), 2));
    }
  }
}

TEST_P(ListsOnCuda, ListsOfOneStreamFollowEachOther) {
  const KernelsAt kernels(place());
  for (int i = 0; i < 3; ++i) {
    const auto a = there({torch::full({100}, 1.0 * i), torch::full({7}, 2.0 * i)});
    const auto b = there({torch::zeros({100}), torch::zeros({7})});
    copy("test", a, b);
    EXPECT_EQ(b[0].sum().item<float>(), 100 * i);
    EXPECT_EQ(b[1].sum().item<float>(), 14 * i);
  }
}

TEST_P(ListsOnCuda, MomentsOfRanksAreMergedAsByTheProcessor) {
  constexpr std::int64_t kChannels = 11;
  torch::manual_seed(6);
  at::Tensor gathered = torch::rand({4, 2 * kChannels + 2}, at::kDouble);
  gathered.select(1, 2 * kChannels).copy_(torch::tensor({3.0, 0.0, 1.0, 500.0}));
  const at::Tensor expected = merge_moments(gathered, kChannels);
  const KernelsAt kernels(place());
  const at::Tensor got = merge_moments(gathered.to(device()), kChannels);
  EXPECT_TRUE(torch::allclose(got.cpu(), expected, 1e-12, 1e-12));
}

/// The emulated kernels, which count the lists that were made and given back.
struct CountedLists {
  static inline int made = 0;
  static inline int freed = 0;

  static const kernels::cuda::Interface* functions() {
    static const kernels::cuda::Interface all = [] {  // lists keep what they came by
      kernels::cuda::Interface counted = *testing_cuda::emulation();
      counted.make_list = [](int device, const kernels::cuda::Memory* memory) {
        ++made;
        return testing_cuda::emulation()->make_list(device, memory);
      };
      counted.free_list = [](kernels::cuda::List* list) {
        ++freed;
        testing_cuda::emulation()->free_list(list);
      };
      return counted;
    }();
    return &all;
  }
};

TEST(KeptLists, OutliveTheirThreadSinceItsGraphsMay) {
  choose_kernels(at::kCPU, CountedLists::functions());
  const auto measure = [] { norm("test", {torch::ones({100})}, kernels::Norm::kTwo); };
  std::thread(measure).join();
  EXPECT_EQ(CountedLists::made, 1);
  EXPECT_EQ(CountedLists::freed, 0);
  std::thread(measure).join();
  EXPECT_EQ(CountedLists::made, 1) << "the next thread takes the list over";
  choose_usual_kernels(at::kCPU);
}

}  // namespace
}  // namespace mezzo::bridge
