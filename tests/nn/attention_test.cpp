// Attention against torch::nn::MultiheadAttention with the same weights, and against float64.
#include "mezzo/attention.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "mezzo/error.h"

namespace mezzo::nn {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
const at::Tensor kNone;
constexpr std::int64_t kLong = 5, kKeys = 7, kBatch = 3, kSize = 8, kHeads = 2;

void copy_parameters(const torch::nn::Module& from, torch::nn::Module& to) {
  const torch::NoGradGuard no_grad;
  auto targets = to.named_parameters();
  const auto sources = from.named_parameters();
  ASSERT_EQ(targets.keys(), sources.keys());
  for (const auto& source : sources) targets[source.key()].copy_(source.value());
}

void expect_near(const at::Tensor& got, const at::Tensor& wanted, double tolerance = 1e-5) {
  ASSERT_EQ(got.defined(), wanted.defined());
  if (!got.defined()) return;
  ASSERT_EQ(got.sizes(), wanted.sizes());
  EXPECT_TRUE(got.to(at::kDouble).allclose(wanted.to(at::kDouble), tolerance, tolerance))
      << (got.to(at::kDouble) - wanted.to(at::kDouble)).abs().max();
}

/// Each batch has another number of keys.
at::Tensor padding() {
  return torch::arange(kKeys).unsqueeze(0) >= torch::tensor({7, 4, 2}).unsqueeze(1);
}

struct Arguments {
  at::Tensor query = torch::randn({kLong, kBatch, kSize});
  at::Tensor key = torch::randn({kKeys, kBatch, kSize});
  at::Tensor value = torch::randn({kKeys, kBatch, kSize});
};

std::vector<MultiheadAttentionOptions> all_options() {
  const auto plain = [] { return MultiheadAttentionOptions(kSize, kHeads); };
  return {plain(), plain().bias(false), plain().add_bias_kv(true), plain().add_zero_attn(true),
          plain().add_bias_kv(true).add_zero_attn(true)};
}

TEST(MultiheadAttention, ParametersAndStartValuesAreLibTorchs) {
  for (const MultiheadAttentionOptions& options : all_options()) {
    torch::manual_seed(2);
    const torch::nn::MultiheadAttention like(options);
    torch::manual_seed(2);
    const MultiheadAttention ours(options);
    const auto wanted = like->named_parameters();
    const auto got = ours->named_parameters();
    ASSERT_EQ(got.keys(), wanted.keys());
    for (const auto& item : wanted) EXPECT_TRUE(got[item.key()].equal(item.value())) << item.key();
  }
}

TEST(MultiheadAttention, OutputsWeightsAndGradientsAreLibTorchs) {
  for (const MultiheadAttentionOptions& options : all_options()) {
    torch::nn::MultiheadAttention like(options);
    MultiheadAttention ours(options);
    copy_parameters(*like, *ours);
    for (const bool padded : {false, true}) {
      for (const bool masked : {false, true}) {
        Arguments x;
        x.query.requires_grad_();
        const at::Tensor pads = padded ? padding() : at::Tensor();
        const at::Tensor mask = masked ? torch::randn({kLong, kKeys}) : at::Tensor();
        for (const bool needed : {false, true}) {
          const Pair wanted = like(x.query, x.key, x.value, pads, needed, mask, false);
          const Pair got = ours(x.query, x.key, x.value, pads, needed, mask, false);
          expect_near(std::get<0>(got), std::get<0>(wanted));
          expect_near(std::get<1>(got), std::get<1>(wanted));
          const auto gradient = [&](const Pair& of, const at::Tensor& to) {
            return torch::autograd::grad({std::get<0>(of).square().sum()}, {to}, {}, true)[0];
          };
          expect_near(gradient(got, x.query), gradient(wanted, x.query), 1e-4);
          expect_near(gradient(got, ours->out_proj->weight),
                      gradient(wanted, like->out_proj->weight), 1e-4);
        }
        const Pair wanted = like(x.query, x.key, x.value, pads, true, mask, true);
        expect_near(std::get<1>(ours(x.query, x.key, x.value, pads, true, mask, true)),
                    std::get<1>(wanted));
      }
    }
  }
}

TEST(MultiheadAttention, KeysAndValuesMayHaveSizesOfTheirOwn) {
  const auto options = MultiheadAttentionOptions(kSize, kHeads).kdim(6).vdim(6);
  torch::nn::MultiheadAttention like(options);
  MultiheadAttention ours(options);
  copy_parameters(*like, *ours);
  const at::Tensor query = torch::randn({kLong, kBatch, kSize});
  const at::Tensor key = torch::randn({kKeys, kBatch, 6});
  expect_near(std::get<0>(ours(query, key, key)), std::get<0>(like(query, key, key)));
  MultiheadAttention wider(MultiheadAttentionOptions(kSize, kHeads).kdim(6).vdim(4));
  EXPECT_EQ(std::get<0>(wider(query, key, torch::randn({kKeys, kBatch, 4}))).sizes(),
            query.sizes());
}

TEST(MultiheadAttention, SelfAttentionAndCausalMasks) {
  torch::nn::MultiheadAttention like(kSize, kHeads);
  MultiheadAttention ours(kSize, kHeads);
  copy_parameters(*like, *ours);
  const at::Tensor x = torch::randn({kLong, kBatch, kSize});
  const at::Tensor later = torch::ones({kLong, kLong}, at::kBool).triu(1);
  const at::Tensor added = torch::zeros({kLong, kLong}).masked_fill(later, -INFINITY);
  const Pair wanted = like(x, x, x, kNone, true, added);
  for (const bool needed : {false, true}) {
    expect_near(std::get<0>(ours(x, x, x, kNone, needed, kNone, true, true)), std::get<0>(wanted));
    expect_near(std::get<0>(ours(x, x, x, kNone, needed, later)), std::get<0>(wanted));
    expect_near(std::get<0>(ours(x, x, x, kNone, needed, added)), std::get<0>(wanted));
  }
  expect_near(std::get<1>(ours(x, x, x, kNone, true, kNone, true, true)), std::get<1>(wanted));
  // With padding, too: what both masks hide is hidden.
  const at::Tensor pads =
      torch::arange(kLong).unsqueeze(0) >= torch::tensor({5, 4, 3}).unsqueeze(1);
  expect_near(std::get<0>(ours(x, x, x, pads, false, kNone, true, true)),
              std::get<0>(like(x, x, x, pads, true, added)));
}

TEST(MultiheadAttention, AMaskForEachHeadAndBatch) {
  MultiheadAttention ours(kSize, kHeads);
  const Arguments x;
  at::Tensor mask = torch::rand({kBatch * kHeads, kLong, kKeys}).gt(0.6);
  mask.select(2, 0).fill_(false);
  const at::Tensor weights =
      std::get<1>(ours(x.query, x.key, x.value, kNone, true, mask, /*average=*/false));
  EXPECT_TRUE(weights.reshape({kBatch * kHeads, kLong, kKeys}).eq(0).equal(mask));
  expect_near(std::get<0>(ours(x.query, x.key, x.value, kNone, false, mask)),
              std::get<0>(ours(x.query, x.key, x.value, kNone, true, mask)));
}

TEST(MultiheadAttention, AQueryThatMayLookAtNothingHasNoNaN) {
  MultiheadAttention ours(kSize, kHeads);
  Arguments x;
  x.query.requires_grad_();
  const at::Tensor all = torch::ones({kBatch, kKeys}, at::kBool);
  for (const bool needed : {false, true}) {
    const auto [y, weights] = ours(x.query, x.key, x.value, all, needed);
    EXPECT_TRUE(y.isfinite().all().item<bool>());
    EXPECT_TRUE(!needed || weights.abs().max().item<float>() == 0);
    const auto gradient = torch::autograd::grad({y.sum()}, {x.query})[0];
    EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  }
}

TEST(MultiheadAttention, DropoutActsWhileTrainingOnly) {
  MultiheadAttention ours(MultiheadAttentionOptions(kSize, kHeads).dropout(0.5));
  const Arguments x;
  const auto weights = [&] {
    return std::get<1>(ours(x.query, x.key, x.value, kNone, true, kNone, false));
  };
  EXPECT_TRUE(weights().eq(0).any().item<bool>());
  ours->eval();
  EXPECT_FALSE(weights().eq(0).any().item<bool>());
  expect_near(weights().sum(-1), torch::ones({kBatch, kHeads, kLong}));
}

TEST(MultiheadAttention, LowTypesAreNearFloat64) {
  for (const at::ScalarType low : {at::kHalf, at::kBFloat16}) {
    MultiheadAttention ours(kSize, kHeads);
    ours->to(low);
    MultiheadAttention exact(kSize, kHeads);
    exact->to(at::kDouble);
    copy_parameters(*ours, *exact);
    const Arguments x;
    const auto run = [&](MultiheadAttention net, at::ScalarType type, bool needed) {
      return std::get<0>(net(x.query.to(low).to(type), x.key.to(low).to(type),
                             x.value.to(low).to(type), padding(), needed));
    };
    const double tolerance = low == at::kHalf ? 4e-3 : 3e-2;
    for (const bool needed : {false, true}) {
      const at::Tensor got = run(ours, low, needed);
      EXPECT_EQ(got.scalar_type(), low);
      expect_near(got, run(exact, at::kDouble, true), tolerance);
    }
  }
}

TEST(MultiheadAttention, WorksInASequenceAndCanBeCloned) {
  MultiheadAttention ours(kSize, kHeads);
  const auto copy = std::dynamic_pointer_cast<MultiheadAttentionImpl>(ours->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(copy->in_proj_weight.equal(ours->in_proj_weight));
  EXPECT_FALSE(copy->in_proj_weight.is_same(ours->in_proj_weight));
  const at::Tensor x = torch::randn({kLong, kBatch, kSize});
  torch::nn::AnyModule any(ours);
  EXPECT_TRUE(std::get<0>(any.forward<Pair>(x, x, x)).equal(std::get<0>(ours(x, x, x))));
}

TEST(MultiheadAttention, SizesThatDoNotFitAreNamed) {
  EXPECT_THROW(MultiheadAttention(8, 3), ConfigError);
  MultiheadAttention ours(kSize, kHeads);
  const Arguments x;
  EXPECT_THROW(ours(x.query, x.key, x.key.narrow(0, 0, 2)), ConfigError);
  EXPECT_THROW(ours(x.query[0], x.key, x.value), ConfigError);
  EXPECT_THROW(ours(x.query, x.key, x.value, torch::ones({kKeys, kBatch}, at::kBool)), ConfigError);
  EXPECT_THROW(ours(x.query, x.key, x.value, kNone, true, torch::ones({kLong, kLong})),
               ConfigError);
}

}  // namespace
}  // namespace mezzo::nn
