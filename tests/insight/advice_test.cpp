// The first advice is one that a program can apply: an operator or a module to keep float comes
// before whole levels wherever the step passes with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "insight/gallery.h"

namespace mezzo::insight {
namespace {

/// Steps that pass in float and fail at O2 and O3, and at O1 where that computes them in half.
struct HalfFault {
  Fault fault;
  bool at_o1 = true, at_o3 = true;
};

std::vector<HalfFault> half_faults() {
  std::vector<HalfFault> all;
  bool at_o1 = true;
  const auto add = [&](const std::string& name, double input, Step middle) {
    all.push_back({{.name = name, .input = input, .middle = std::move(middle)}, at_o1});
  };
  add("scores", 300, [](const at::Tensor& x) { return torch::mm(torch::mm(x, x.t()) / 3, x); });
  add("scores_in_softmax", 300,
      [](const at::Tensor& x) { return torch::mm(torch::mm(x, x.t()).softmax(1), x); });
  add("scores_in_batches", 300, [](const at::Tensor& x) {
    const at::Tensor y = x.unsqueeze(0);
    return torch::bmm(torch::bmm(y, y.transpose(1, 2)).softmax(2), y)[0];
  });
  at_o1 = false;
  add("exponential", 12, [](const at::Tensor& x) { return x.exp() / 1e4; });
  at_o1 = true;
  add("exponential_in_place", 12, [](const at::Tensor& x) { return x.clone().exp_() / 1e4; });
  at_o1 = false;
  add("square", 300, [](const at::Tensor& x) { return x.square().sqrt(); });
  add("power", 300, [](const at::Tensor& x) { return x.pow(2) / 1e3; });
  at_o1 = true;
  add("product", 300, [](const at::Tensor& x) { return x * x / 1e3; });
  add("product_in_place", 300, [](const at::Tensor& x) { return (x + 0).mul_(x) / 1e3; });
  at_o1 = false;
  add("norm", 3e4, [](const at::Tensor& x) { return x * x.norm() / 1e6; });
  add("variance", 400, [](const at::Tensor& x) {
    const at::Tensor y = x * torch::arange(8).to(x.scalar_type());
    return y / (y.pow(2).mean(1, true) - y.mean(1, true).pow(2) + 1).sqrt();
  });
  add("sum", 6e4, [](const at::Tensor& x) { return x * x.sum(1, true) / 1e6; });
  add("running_sum", 3e4, [](const at::Tensor& x) { return x.cumsum(1) / 1e4; });
  add("running_product", 30, [](const at::Tensor& x) { return x.cumprod(1) / 1e12; });
  at_o1 = true;
  add("convolution", 6e4, [](const at::Tensor& x) {
    return torch::conv1d(x.unsqueeze(1), torch::ones({1, 1, 3}).to(x.scalar_type()), {}, 1, 1)
               .squeeze(1) /
           1e4;
  });
  add("einsum", 300, [](const at::Tensor& x) {
    return torch::einsum("ij,kj->ik", {x, x}).mm(x) / 1e6;
  });
  add("custom", 300, [](const at::Tensor& x) {
    struct Square : torch::autograd::Function<Square> {
      static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& y) {
        ctx->save_for_backward({y});
        return y * y;
      }
      static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                     torch::autograd::variable_list gradients) {
        return {gradients[0] * ctx->get_saved_variables()[0] * 2};
      }
    };
    return Square::apply(x) / 1e3;
  });
  add("one_after_the_other", 300, [](const at::Tensor& x) {
    at::Tensor y = torch::mm(x, x.t());                       // 7.2e5
    y = torch::matmul(y.unsqueeze(0), y.unsqueeze(0))[0];     // 1.6e12
    y = torch::bmm(y.unsqueeze(0), y.unsqueeze(0))[0] / 1e9;  // 7e15
    y = torch::conv1d(y.unsqueeze(1), torch::full({1, 1, 1}, 3).to(y.scalar_type())).squeeze(1);
    y = torch::addmm(y, y, y) / 1e15;
    y = torch::linear(y, torch::full({8, 3}, 2).to(y.scalar_type()));
    return y / 1e15;
  });
  all.push_back({{.name = "before_the_network",
                  .input = 300,
                  .before = [](const at::Tensor& x) { return x * x / 1e3; }},
                 false});
  all.push_back({{.name = "large_input", .input = 1e5}});
  const auto add_weights = [&](const std::string& name, double input, bool at_o3, auto spoil) {
    all.push_back({{.name = name, .input = input, .spoil = spoil}, true, at_o3});
  };
  // O3 has no masters that hold it.
  add_weights("large_bias", 1, false, [](SandwichImpl& net) { net.stem->bias.fill_(7e4); });
  add_weights("bias_that_adds_up", 3e4, true, [](SandwichImpl& net) { net.stem->bias.fill_(4e4); });
  add_weights("large_weights", 4, true, [](SandwichImpl& net) { net.stem->weight.fill_(12000); });
  add_weights("last_layer", 3e4, true, [](SandwichImpl& net) { net.head->weight.fill_(1); });
  all.push_back({{.name = "loss_outside", .input = 1e4, .loss = [](const at::Tensor& y) {
                    return y.pow(2).sum().pow(2) / 1e8;
                  }}});
  all.push_back({{.name = "loss_of_a_large_factor",
                  .loss = [](const at::Tensor& y) { return y.sum() * 1e5; }}});
  return all;
}

std::vector<Fault> at_levels() {
  std::vector<Fault> all;
  for (const std::string level : {"O1", "O2", "O3"}) {
    for (auto [fault, at_o1, at_o3] : half_faults()) {
      if ((level == "O1" && !at_o1) || (level == "O3" && !at_o3)) continue;
      fault.name += "_at_" + level;
      fault.level = level;
      fault.scale = 1;
      all.push_back(std::move(fault));
    }
  }
  return all;
}

class FirstAdvice : public testing::TestWithParam<Fault> {};

TEST_P(FirstAdvice, KeepsAnOperatorOrAModuleInFloat) {
  const Fault& fault = GetParam();
  Scene scene(fault);
  ASSERT_TRUE(scene.step().skipped()) << "the fault itself is missing";
  const Explanation why = scene.explain();
  SCOPED_TRACE(why.to_text());
  ASSERT_TRUE(why.reproduced);
  EXPECT_FALSE(why.fails_in_float) << "the fault is none of precision";
  EXPECT_LE(why.evaluations, 12);
  ASSERT_FALSE(why.advice.empty());
  const Advice& first = why.advice.front();
  EXPECT_TRUE(first.tried);
  EXPECT_TRUE(first.policy.has_value() || !first.keep_float.empty() || first.loss_scale);
  Scene mended(fault, first);
  EXPECT_TRUE(mended.step().applied()) << first.text;
}

INSTANTIATE_TEST_SUITE_P(Faults, FirstAdvice, testing::ValuesIn(at_levels()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace mezzo::insight
