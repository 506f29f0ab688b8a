// Outputs that overlap, told from those that only lie between each other's elements.
#include "bridge/outputs.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <random>
#include <set>

#include "bridge/multi_tensor.h"
#include "mezzo/error.h"

namespace mezzo::bridge {
namespace {

// The bytes that an element stands on, one by one.
std::multiset<std::intptr_t> bytes_of(const at::Tensor& tensor) {
  std::vector<std::intptr_t> places{reinterpret_cast<std::intptr_t>(tensor.const_data_ptr())};
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    std::vector<std::intptr_t> more;
    for (const std::intptr_t place : places) {
      for (std::int64_t k = 0; k < tensor.size(d); ++k) {
        more.push_back(place + k * tensor.stride(d) * tensor.element_size());
      }
    }
    places = more;
  }
  std::multiset<std::intptr_t> bytes;
  for (const std::intptr_t place : places) {
    for (std::int64_t k = 0; k < tensor.element_size(); ++k) bytes.insert(place + k);
  }
  return bytes;
}

bool any_twice(const std::multiset<std::intptr_t>& bytes) {
  return std::adjacent_find(bytes.begin(), bytes.end()) != bytes.end();
}

// Some view of the memory.
at::Tensor view_of(const at::Tensor& memory, std::mt19937& random) {
  const auto up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  const at::Tensor typed = memory.view(up_to(1) == 0 ? at::kFloat : at::kHalf);
  std::vector<std::int64_t> sizes, strides;
  for (std::int64_t d = up_to(3); d > 0; --d) {
    sizes.push_back(1 + up_to(3));
    strides.push_back(up_to(12));
  }
  return typed.as_strided(sizes, strides, up_to(30));
}

TEST(Outputs, OverlapWhereTheirBytesDo) {
  const at::Tensor memory = torch::zeros({600}, at::kByte);
  std::mt19937 random(7);
  int overlapping = 0;
  int intertwined = 0;
  for (int i = 0; i < 5000; ++i) {
    const at::Tensor a = view_of(memory, random);
    const at::Tensor b = view_of(memory, random);
    auto bytes = bytes_of(a);
    const auto others = bytes_of(b);
    ASSERT_EQ(overlaps_itself(a), any_twice(bytes)) << a.sizes() << ' ' << a.strides();
    if (any_twice(bytes) || any_twice(others)) continue;
    const bool reach = *bytes.begin() <= *others.rbegin() && *others.begin() <= *bytes.rbegin();
    bytes.insert(others.begin(), others.end());
    ASSERT_EQ(overlap(a, b), any_twice(bytes))
        << a.dtype() << a.sizes() << ' ' << a.strides() << " at " << a.storage_offset() << ", "
        << b.dtype() << b.sizes() << ' ' << b.strides() << " at " << b.storage_offset();
    (any_twice(bytes) ? overlapping : intertwined) += reach ? 1 : 0;
  }
  EXPECT_GT(overlapping, 200);
  EXPECT_GT(intertwined, 200);
}

TEST(Outputs, ColumnsOfALongMatrixDoNotOverlap) {
  const at::Tensor all = torch::empty({1'000'000, 40});
  std::vector<at::Tensor> columns;
  for (std::int64_t k = 0; k < 40; ++k) columns.push_back(all.select(1, k));
  check_outputs("f", "out", columns);
  columns.push_back(all.narrow(1, 38, 2).narrow(0, 999'990, 10));
  EXPECT_THROW(check_outputs("f", "out", columns), ConfigError);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Outputs, ThatOverlapThemselvesAreErrorsWhateverTheirStrides) {
  const at::Tensor x = torch::zeros({6});
  const at::Tensor windows = x.unfold(0, 3, 1);
  const std::vector<at::Tensor> in{torch::randn({4, 3})};
  EXPECT_THAT(error_of([&] { scale("f", in, {windows}, 1); }),
              testing::HasSubstr("out[0] overlaps itself"));
  EXPECT_THAT(error_of([&] { axpby("f", in, in, {windows}, 1, 1); }),
              testing::HasSubstr("out[0] overlaps itself"));
  EXPECT_THAT(error_of([&] { copy("f", in, {windows}); }),
              testing::HasSubstr("out[0] overlaps itself"));
  EXPECT_TRUE(x.eq(0).all().item<bool>());
}

// A device without kernels goes along, so that LibTorch's operators would do the work.
TEST(Outputs, ThatOverlapAreErrorsWithLibTorchsOperatorsToo) {
  const at::Tensor there = torch::empty({2}, at::TensorOptions(at::kMeta));
  const at::Tensor x = torch::zeros({8});
  const std::vector<at::Tensor> in{torch::ones({4}), torch::ones({4}), there, there};
  const std::vector<at::Tensor> on_each_other{x.narrow(0, 0, 4), x.narrow(0, 3, 4), there, there};
  const std::vector<at::Tensor> on_itself{x.narrow(0, 0, 4), x.narrow(0, 5, 1).expand({4}), there,
                                          there};
  for (const auto& [out, message] :
       {std::pair(on_each_other, "out[0] and out[1] overlap in memory"),
        std::pair(on_itself, "out[1] overlaps itself")}) {
    const std::vector<at::Tensor>& list = out;
    EXPECT_THAT(error_of([&] { scale("f", in, list, 2); }), testing::HasSubstr(message));
    EXPECT_THAT(error_of([&] { axpby("f", in, in, list, 2, 1); }), testing::HasSubstr(message));
    EXPECT_THAT(error_of([&] { copy("f", in, list); }), testing::HasSubstr(message));
    EXPECT_TRUE(x.eq(0).all().item<bool>()) << "written before the error";
  }
  copy("f", in, {x.narrow(0, 0, 4), x.narrow(0, 4, 4), there, there});
  EXPECT_TRUE(x.eq(1).all().item<bool>());
}

}  // namespace
}  // namespace mezzo::bridge
