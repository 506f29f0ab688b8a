#include <gmock/gmock.h>
#include <torch/torch.h>

#include "bridge/list_operators.h"
#include "bridge/multi_tensor.h"
#include "bridge/overlap.h"
#include "bridge/tensors.h"
#include "mezzo/error.h"

namespace mezzo::bridge {
namespace {

std::vector<at::Tensor> mixed_list() {
  torch::manual_seed(1);
  return {torch::randn({3, 5}),
          torch::randn({2, 8, 4, 4}).to(at::kHalf).contiguous(at::MemoryFormat::ChannelsLast),
          torch::randn({0}),
          torch::randn({7, 9}).to(at::kBFloat16).t(),
          torch::randn({70001}),
          torch::randn({4, 6}, at::kDouble).slice(1, 0, 6, 2),
          torch::randn({1}).expand({5})};
}

TEST(Overlap, IsFoundAmongWrittenMemoryOnly) {
  const std::vector<unsigned char> memory(100);
  const auto at_byte = [&](std::size_t begin, std::size_t bytes, std::size_t index, bool written) {
    return Extent{memory.data() + begin, bytes, index, written};
  };
  std::vector<Extent> touching{at_byte(10, 10, 0, true), at_byte(0, 10, 1, true),
                               at_byte(20, 0, 2, true)};
  EXPECT_FALSE(find_overlap(touching));
  std::vector<Extent> reads{at_byte(0, 50, 0, false), at_byte(10, 50, 1, false)};
  EXPECT_FALSE(find_overlap(reads));
  std::vector<Extent> inside{at_byte(0, 90, 0, false), at_byte(5, 2, 1, false),
                             at_byte(80, 5, 2, true)};
  const auto found = find_overlap(inside);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.index, 0);
  EXPECT_EQ(found->second.index, 2);
}

TEST(Lists, NormsTakeAnyTypeAndLayout) {
  const auto list = mixed_list();
  std::vector<double> each;
  const double total = norm("test", list, kernels::Norm::kTwo, &each);
  double squares = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const double expected = list[i].to(at::kDouble).norm().item<double>();
    EXPECT_NEAR(each[i], expected, 1e-10 * (1 + expected)) << i;
    squares += expected * expected;
  }
  EXPECT_NEAR(total, std::sqrt(squares), 1e-10 * total);
}

TEST(Lists, ScaleWritesEveryLayoutAndBumpsVersions) {
  const auto in = mixed_list();
  std::vector<at::Tensor> out{torch::empty({3, 5}, at::kHalf),
                              torch::empty({2, 8, 4, 4}),
                              torch::empty({0}),
                              torch::empty({7, 9}).t(),
                              torch::empty({70001}, at::kBFloat16),
                              torch::empty({4, 6}, at::kDouble).slice(1, 0, 6, 2),
                              torch::empty({5})};
  out[3] = torch::empty({9, 7});
  std::vector<std::int64_t> versions;
  for (const auto& tensor : out) versions.push_back(tensor._version());
  EXPECT_TRUE(scale("test", {in[0], in[1], in[2], in[3], in[4], in[5], in[6]}, out, 0.5));
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto expected = (in[i].to(at::kDouble) * 0.5).to(out[i].scalar_type());
    EXPECT_TRUE(torch::allclose(out[i], expected, 1e-2, 1e-6)) << i;
    EXPECT_GT(out[i]._version(), versions[i]) << i;
  }
}

TEST(Lists, FindWhatIsNotFinite) {
  auto list = mixed_list();
  EXPECT_TRUE(all_finite("test", list));
  list[1].index_put_({1, 7, 3, 3}, INFINITY);
  EXPECT_FALSE(all_finite("test", list));
}

struct BadList {
  const char* name;
  std::function<void()> call;
  const char* message;
};

TEST(Lists, BadListsAreErrorsThatNameTheTensor) {
  const at::Tensor x = torch::randn({10});
  const at::Tensor kept = torch::zeros({2});
  const std::vector<BadList> cases{
      {"lengths",
       [&] {
         scale("f", {x, x}, {x}, 1);
       },
       "'in' has 2 tensors, 'out' has 1"},
      {"sizes",
       [&] {
         scale("f", {x}, {torch::empty({5, 2})}, 1);
       },
       "in[0] has sizes [10]"},
      {"integer",
       [&] {
         all_finite("f", {x, torch::zeros({2}, at::kInt)});
       },
       "tensors[1] has type Int"},
      {"complex", [&] { all_finite("f", {torch::zeros({2}, at::kComplexFloat)}); },
       "tensors[0] has type ComplexFloat"},
      {"sparse", [&] { all_finite("f", {torch::eye(3).to_sparse()}); }, "to_dense()"},
      {"quantised", [&] { all_finite("f", {torch::quantize_per_tensor(x, 0.1, 0, at::kQInt8)}); },
       "quantised"},
      {"undefined", [&] { all_finite("f", {at::Tensor()}); }, "tensors[0] is undefined"},
      {"overlapping outputs",
       [&] {
         scale("f", {torch::ones({4}), torch::ones({4})}, {x.narrow(0, 0, 4), x.narrow(0, 3, 4)},
               1);
       },
       "out[0] and out[1] overlap"},
      {"shifted in place", [&] { scale("f", {x.narrow(0, 0, 4)}, {x.narrow(0, 1, 4)}, 1); },
       "in[0] and out[0] overlap"},
      {"the same strided output twice",
       [&] {
         const at::Tensor column = torch::zeros({4, 3}).select(1, 0);
         scale("f", {torch::ones({4}), torch::ones({4})}, {column, column}, 1);
       },
       "out[0] and out[1] overlap in memory"},
      {"a strided output within a dense one",
       [&] {
         const at::Tensor all = torch::zeros({4, 3});
         scale("f", {torch::ones({4}), torch::ones({4, 3})}, {all.select(1, 2), all}, 1);
       },
       "out[0] and out[1] overlap in memory"},
      {"an output that is one element",
       [&] {
         scale("f", {torch::ones({2}), torch::ones({5})}, {kept, x.narrow(0, 0, 1).expand({5})}, 1);
       },
       "out[1] overlaps itself"},
  };
  for (const BadList& row : cases) {
    try {
      row.call();
      ADD_FAILURE() << row.name << ": no error";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(row.message)) << row.name;
    }
  }
  EXPECT_TRUE(kept.eq(0).all().item<bool>()) << "written before the error";
}

TEST(Lists, OutputsMayLieBetweenTheElementsOfOthers) {
  at::Tensor all = torch::zeros({50, 40});
  std::vector<at::Tensor> in, out;
  for (std::int64_t column = 0; column < 40; ++column) {
    in.push_back(torch::full({50}, static_cast<double>(column)));
    out.push_back(all.select(1, column));
  }
  EXPECT_TRUE(scale("test", in, out, 2));
  EXPECT_TRUE(torch::equal(all[7], torch::arange(40).to(at::kFloat) * 2));
}

// The operators for devices without kernels, on a CPU and against the kernels.
TEST(ListOperators, AgreeWithTheKernels) {
  const auto list = mixed_list();
  for (const kernels::Norm which : {kernels::Norm::kTwo, kernels::Norm::kMax}) {
    std::vector<double> each;
    std::vector<double> expected;
    const double total = by_operators::norm(list, which, &each);
    EXPECT_NEAR(total, norm("test", list, which, &expected), 1e-9 * total);
    for (std::size_t i = 0; i < list.size(); ++i) EXPECT_NEAR(each[i], expected[i], 1e-9 * total);
  }
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    std::vector<at::Tensor> ours;
    std::vector<at::Tensor> theirs;
    for (const at::Tensor& tensor : list) {
      ours.push_back(torch::empty(tensor.sizes(), type));
      theirs.push_back(torch::empty(tensor.sizes(), type));
    }
    const auto expect_equal = [&] {
      for (std::size_t i = 0; i < list.size(); ++i) {
        EXPECT_TRUE(torch::allclose(ours[i], theirs[i], 1e-2, 1e-6, /*equal_nan=*/true)) << i;
      }
    };
    for (const double factor : {0.5, 1e6}) {
      EXPECT_EQ(scale("test", list, ours, factor), by_operators::scale(list, theirs, factor))
          << type << ' ' << factor;
      expect_equal();
      EXPECT_EQ(axpby("test", list, list, ours, factor, -0.25),
                by_operators::axpby(list, list, theirs, factor, -0.25));
      expect_equal();
    }
    copy("test", list, ours);
    by_operators::copy(list, theirs);
    expect_equal();
  }
}

TEST(ListOperators, FindWhatIsNotFiniteAndTakeNothing) {
  auto list = mixed_list();
  EXPECT_TRUE(by_operators::all_finite(list));
  list[4][70000] = NAN;
  EXPECT_FALSE(by_operators::all_finite(list));
  EXPECT_TRUE(by_operators::all_finite({}));
  EXPECT_TRUE(by_operators::scale({}, {}, 2));
  EXPECT_EQ(by_operators::norm({}, kernels::Norm::kTwo, nullptr), 0);
}

TEST(ListOperators, CopyReadsWhatItWritesBefore) {
  const at::Tensor both = torch::arange(8).to(at::kFloat);
  const std::vector<at::Tensor> halves = both.chunk(2);
  by_operators::copy(halves, {halves[1], halves[0]});
  EXPECT_TRUE(torch::equal(both, torch::tensor({4.0F, 5.0F, 6.0F, 7.0F, 0.0F, 1.0F, 2.0F, 3.0F})));
}

TEST(ListOperators, TensorsOnTwoDevicesAreAnErrorThatNamesOne) {
  const at::Tensor there = torch::empty({10}, at::TensorOptions(at::kMeta));
  try {
    scale("f", {torch::ones({10})}, {there}, 2);
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("in[0] is Float [10] on cpu"));
  }
}

TEST(Lists, AxpbyTakesFactorsOfEachTensor) {
  const auto list = mixed_list();
  const auto count = static_cast<std::int64_t>(list.size());
  const at::Tensor a = torch::arange(count, at::kDouble) * 0.25;
  const at::Tensor b = 1 - a;
  std::vector<at::Tensor> out;
  std::vector<at::Tensor> theirs;
  for (const at::Tensor& tensor : list) {
    out.push_back(torch::empty(tensor.sizes()));
    theirs.push_back(torch::empty(tensor.sizes()));
  }
  axpby_each("test", list, list, out, a, b);
  const auto numbers = [](const at::Tensor& tensor) {
    return std::vector<double>(tensor.data_ptr<double>(),
                               tensor.data_ptr<double>() + tensor.numel());
  };
  by_operators::axpby(list, list, theirs, numbers(a), numbers(b));
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_TRUE(torch::allclose(out[i], list[i].to(at::kFloat), 1e-5, 1e-6)) << i;
    EXPECT_TRUE(torch::allclose(theirs[i], list[i].to(at::kFloat), 1e-5, 1e-6)) << i;
  }
}

TEST(Lists, ANegatedViewIsReadAsItsValues) {
  const at::Tensor complex = torch::view_as_complex(torch::randn({9, 2}));
  const at::Tensor negated = at::imag(complex.conj()).unsqueeze(1).expand({9, 1});
  ASSERT_TRUE(negated.is_neg());
  const at::Tensor out = torch::empty({9, 1});
  scale("test", {negated}, {out}, 2);
  EXPECT_TRUE(torch::equal(out, negated.clone() * 2));
}

TEST(Lists, OneMemoryAsTwoTypesIsNotInPlace) {
  const at::Tensor memory = torch::ones({8});
  const at::Tensor low = memory.view(at::kHalf).narrow(0, 0, 8);
  EXPECT_THROW(scale("f", {low}, {memory}, 1), ConfigError);
}

TEST(Lists, EmptyListsAreFine) {
  EXPECT_TRUE(all_finite("f", {}));
  EXPECT_EQ(norm("f", {}, kernels::Norm::kTwo), 0);
  EXPECT_TRUE(scale("f", {}, {}, 1));
}

}  // namespace
}  // namespace mezzo::bridge
