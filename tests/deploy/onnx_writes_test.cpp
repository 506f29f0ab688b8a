// Writes at places that repeat, and in place into constants, in traces of C++ networks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "function_network.h"
#include "messages.h"
#include "mezzo/deploy.h"
#include "run_file.h"

namespace mezzo::deploy {
namespace {

using Tensor = at::Tensor;
using Places = c10::List<std::optional<Tensor>>;

class OnnxWrites : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(17); }
  void TearDown() override { std::filesystem::remove(file_); }

  /// The file gives what the function gives, on the examples and on other tensors.
  void expect_written(const char* what, const FunctionNetworkImpl::Function& function,
                      const Tensor& x, const Tensor& y, const Tensor& other_y, int opset = 18) {
    SCOPED_TRACE(what);
    FunctionNetwork net(function);
    OnnxOptions options = judged_options();
    options.opset = opset;
    const std::string message = message_of([&] {
      const ExportReport report = export_onnx(net, {x, y}, file_, options);
      EXPECT_FALSE(report.verified.empty());
    });
    ASSERT_EQ(message, "no error");
    const Tensor other = torch::randn_like(x);
    const c10::IValue wanted = net->forward(other, other_y);
    EXPECT_LT(error_of_file(file_, {"input_0", "input_1"}, {other, other_y}, wanted), 1e-5);
  }

  const std::filesystem::path file_ = std::filesystem::temp_directory_path() /
                                      ("mezzo_writes_" + std::to_string(getpid()) + ".onnx");
};

TEST_F(OnnxWrites, ReachConstantsOnce) {
  const Tensor x = torch::randn({5, 6}), places = torch::tensor({1, 3, 1, 0, 1}),
               others = torch::tensor({2, 2, 2, 2, 0});
  const auto zeros = [] { return torch::zeros({4, 6}); };
  const std::pair<const char*, FunctionNetworkImpl::Function> cases[] = {
      {"index_put_ that adds",
       [&](const Tensor& a, const Tensor& b) {
         return zeros().index_put_(Places({b}), a, /*accumulate=*/true);
       }},
      {"index_put that adds",
       [&](const Tensor& a, const Tensor& b) {
         return torch::index_put(zeros(), Places({b}), a, /*accumulate=*/true);
       }},
      {"_index_put_impl_",
       [&](const Tensor& a, const Tensor& b) {
         Tensor out = zeros();
         return at::_index_put_impl_(out, Places({b}), a, /*accumulate=*/true);
       }},
      {"index_put_ into ones",
       [&](const Tensor& a, const Tensor& b) {
         return torch::ones({4, 6}).index_put_(Places({b}), a, /*accumulate=*/true);
       }},
      {"twice",
       [&](const Tensor& a, const Tensor& b) {
         Tensor out = zeros();
         out.index_put_(Places({b}), a, true);
         out.index_put_(Places({b}), a * 2, true);
         return out;
       }},
      {"through a view",
       [&](const Tensor& a, const Tensor& b) {
         Tensor out = torch::ones({3, 4, 6});
         out.select(0, 1).index_put_(Places({b}), a, true);
         return out;
       }},
      {"put_",
       [&](const Tensor& a, const Tensor& b) {
         return zeros().put_(b, a.select(1, 0), /*accumulate=*/true);
       }},
      {"index_add_",
       [&](const Tensor& a, const Tensor& b) {
         return torch::ones({4, 6}).index_add_(0, b, a, 2);
       }},
      {"scatter_add_",
       [&](const Tensor& a, const Tensor& b) {
         return torch::ones({4, 6}).scatter_add_(0, b.unsqueeze(1).expand({5, 6}), a);
       }},
      {"add_",
       [&](const Tensor& a, const Tensor&) {
         return torch::ones({5, 6}).add_(a, 3);
       }},
      {"sub_",
       [&](const Tensor& a, const Tensor&) {
         return torch::ones({5, 6}).sub_(a);
       }},
      {"masked_fill_",
       [&](const Tensor& a, const Tensor&) {
         return torch::ones({5, 6}).masked_fill_(a > 0, 3);
       }},
      {"clamp_ by a tensor",
       [&](const Tensor& a, const Tensor&) {
         return torch::full({5, 6}, 0.2).clamp_(a, std::optional<Tensor>());
       }},
      {"addcmul_",
       [&](const Tensor& a, const Tensor&) {
         return torch::ones({5, 6}).addcmul_(a, a, 0.5);
       }},
      {"addmm_",
       [&](const Tensor& a, const Tensor&) {
         return torch::ones({5, 5}).addmm_(a, a.t(), 2, 0.5);
       }},
      {"lerp_",
       [&](const Tensor& a, const Tensor&) {
         return torch::ones({5, 6}).lerp_(a, 0.3);
       }},
      {"index_add_ behind a value that was read",
       [&](const Tensor& a, const Tensor& b) {
         Tensor out = torch::ones({4, 6});
         const Tensor before = out * 2;
         out.index_add_(0, b, a);
         return out + before;
       }},
  };
  for (const auto& [what, function] : cases) expect_written(what, function, x, places, others);
}

TEST_F(OnnxWrites, AddAtPlacesOfEveryKind) {
  const Tensor x = torch::randn({3, 4, 5}), places = torch::tensor({1, 0, 1, 1}),
               others = torch::tensor({2, 2, 0, 2});
  const auto undefined = std::optional<Tensor>();
  const std::pair<const char*, FunctionNetworkImpl::Function> cases[] = {
      {"two tensors of places",
       [&](const Tensor& a, const Tensor& b) {
         return a.index_put(Places({b, b.flip(0)}), torch::ones({4, 5}), true);
       }},
      {"places that broadcast",
       [&](const Tensor& a, const Tensor& b) {
         return a.index_put(Places({b.unsqueeze(1), b.slice(0, 0, 2)}), torch::ones({4, 2, 5}),
                            true);
       }},
      {"behind an axis",
       [&](const Tensor& a, const Tensor& b) {
         return a.index_put(Places({undefined, b}), a.select(0, 0) * 2, true);
       }},
      {"behind an axis, a value each",
       [&](const Tensor& a, const Tensor& b) {
         return a.index_put(Places({undefined, b}), torch::arange(60.0f).reshape({3, 4, 5}), true);
       }},
      {"behind two axes, values of one dimension",
       [&](const Tensor& a, const Tensor& b) {
         return a.index_put(Places({undefined, undefined, b}), torch::arange(4.0f), true);
       }},
      {"behind two axes, written",
       [&](const Tensor& a, const Tensor&) {
         return a.index_put(Places({undefined, undefined, torch::tensor({3, 0, 1})}),
                            torch::arange(36.0f).reshape({3, 4, 3}));
       }},
      {"around an axis",
       [&](const Tensor& a, const Tensor& b) {
         return a.index_put(Places({b, undefined, b}), torch::arange(16.0f).reshape({4, 4}), true);
       }},
      {"a mask",
       [&](const Tensor& a, const Tensor&) {
         return a.index_put(Places({a > 0}), torch::ones({1}), true);
       }},
      {"a mask of rows",
       [&](const Tensor& a, const Tensor& b) {
         return a.index_put(Places({undefined, b > 0}), torch::full({1}, 2.0f), true);
       }},
      {"a number",
       [&](const Tensor& a, const Tensor& b) {
         return a.index_put(Places({b}), torch::tensor(2.5f), true);
       }},
      {"negative places",
       [&](const Tensor& a, const Tensor& b) {
         return a.index_put(Places({b - 3}), a.slice(0, 0, 1), true);
       }},
  };
  for (const auto& [what, function] : cases) expect_written(what, function, x, places, others);
}

TEST_F(OnnxWrites, ReduceAtRepeatedPlaces) {
  const Tensor x = torch::randn({5, 6}), places = torch::tensor({1, 3, 1, 0, 1}),
               others = torch::tensor({2, 2, 2, 2, 0});
  for (const char* how : {"sum", "prod", "mean", "amax", "amin"}) {
    for (const bool includes : {true, false}) {
      SCOPED_TRACE(how);
      const auto self = [] { return torch::linspace(-2, 3, 24).reshape({4, 6}); };
      expect_written(
          "scatter_reduce",
          [&](const Tensor& a, const Tensor& b) {
            return self().scatter_reduce(0, b.unsqueeze(1).expand({5, 6}), a, how, includes);
          },
          x, places, others);
      expect_written(
          "scatter_reduce_",
          [&](const Tensor& a, const Tensor& b) {
            return self().scatter_reduce_(0, b.unsqueeze(1).expand({5, 6}), a, how, includes);
          },
          x, places, others);
      if (std::string(how) == "sum") continue;
      expect_written(
          "index_reduce",
          [&](const Tensor& a, const Tensor& b) {
            return self().index_reduce(0, b, a, how, includes);
          },
          x, places, others);
      expect_written(
          "index_reduce_ behind an axis",
          [&](const Tensor& a, const Tensor& b) {
            return self().t().contiguous().index_reduce_(1, b, a.t(), how, includes);
          },
          x, places, others);
    }
  }
}

}  // namespace
}  // namespace mezzo::deploy
