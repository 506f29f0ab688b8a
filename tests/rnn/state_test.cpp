// States that a layer keeps from call to call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mezzo/error.h"
#include "reference.h"

namespace mezzo::rnn {
namespace {

struct RecurrentState : testing::Test {
  RecurrentState() { torch::manual_seed(1); }

  at::Tensor whole = torch::randn({8, kBatch, kFeatures});
  at::Tensor first = whole.slice(0, 0, 5);
  at::Tensor second = whole.slice(0, 5);
  LSTM lstm{Options{.input_size = kFeatures, .hidden_size = kUnits, .num_layers = 2}};
  at::Tensor wanted = std::get<0>(lstm(whole));
  at::Tensor of_second = std::get<0>(lstm(second));

  at::Tensor run(const at::Tensor& x) { return std::get<0>(lstm(x)); }
  void expect_continued(const at::Tensor& output) {
    EXPECT_LT(largest_difference(output, wanted.slice(0, 5)), 1e-6);
  }
  void expect_at_zeros(const at::Tensor& output) {
    EXPECT_LT(largest_difference(output, of_second), 1e-6);
  }
};

TEST_F(RecurrentState, IsZeroInEachCallUnlessItIsKept) {
  run(first);
  expect_at_zeros(run(second));
  EXPECT_TRUE(lstm->kept_hidden().empty());
}

TEST_F(RecurrentState, InitHiddenKeepsItWithItsGraph) {
  lstm->init_hidden(kBatch);
  run(first);
  const at::Tensor output = run(second);
  expect_continued(output);
  lstm->zero_grad();
  output.sum().backward();
  const at::Tensor through_both = lstm->parameters()[0].grad().clone();
  lstm->zero_grad();
  wanted.slice(0, 5).sum().backward();
  EXPECT_LT(largest_difference(through_both, lstm->parameters()[0].grad()), 1e-5);
}

TEST_F(RecurrentState, InitHiddenLeavesAStateOfThatBatchAlone) {
  lstm->init_hidden(kBatch);
  run(first);
  lstm->init_hidden(kBatch);
  expect_continued(run(second));
  lstm->init_hidden(kBatch + 1);
  EXPECT_EQ(lstm->kept_hidden()[0].abs().sum().item<double>(), 0);
  EXPECT_EQ(lstm->kept_hidden()[1].size(1), kBatch + 1);
}

TEST_F(RecurrentState, ResetHiddenGoesBackToZeros) {
  lstm->init_hidden(kBatch);
  run(first);
  lstm->reset_hidden();
  expect_at_zeros(run(second));
  lstm->reset_hidden(kBatch);
  run(first);
  expect_continued(run(second));
}

TEST_F(RecurrentState, DetachHiddenEndsTheGraph) {
  run(first).sum().backward();
  lstm->detach_hidden();
  const at::Tensor output = run(second);
  expect_continued(output);
  output.sum().backward();  // would be a second pass through the first call
  lstm->detach_hidden();
  EXPECT_FALSE(lstm->kept_hidden()[0].requires_grad());
  run(first).sum().backward();
}

TEST_F(RecurrentState, DetachHiddenWithoutAStateIsAnError) {
  LSTM fresh(lstm->options);
  EXPECT_THROW(fresh->detach_hidden(), Error);
}

TEST_F(RecurrentState, InitInferenceKeepsNoGraph) {
  lstm->init_inference(kBatch);
  EXPECT_TRUE(run(first).requires_grad());
  EXPECT_FALSE(lstm->kept_hidden()[0].requires_grad());
  expect_continued(run(second));
}

TEST_F(RecurrentState, AnotherBatchStartsAtZeros) {
  lstm->init_hidden(kBatch);
  run(first);
  const at::Tensor one = second.slice(1, 0, 1);
  EXPECT_LT(largest_difference(run(one), of_second.slice(1, 0, 1)), 1e-6);
  EXPECT_EQ(lstm->kept_hidden()[0].size(1), 1);
}

TEST_F(RecurrentState, AStateThatIsGivenRulesAndIsFollowed) {
  lstm->init_hidden(kBatch);
  run(second);
  const auto [output, hidden] =
      lstm(first, Hidden{torch::zeros({2, kBatch, kUnits}), torch::zeros({2, kBatch, kUnits})});
  expect_continued(run(second));
}

TEST_F(RecurrentState, FollowsCollectedAndPackedCalls) {
  lstm->init_hidden(kBatch);
  lstm->forward(first, {}, {.collect_hidden = true});
  EXPECT_EQ(lstm->kept_hidden()[0].sizes(), at::IntArrayRef({2, kBatch, kUnits}));
  expect_continued(run(second));

  lstm->reset_hidden();
  const at::Tensor lengths = torch::tensor({2, 5, 4}).cpu();
  lstm->forward_with_packed_input(torch::nn::utils::rnn::pack_padded_sequence(
      first, lengths, /*batch_first=*/false, /*enforce_sorted=*/false));
  const at::Tensor output = run(second);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const std::int64_t length = lengths[b].item<std::int64_t>();
    const at::Tensor alone = torch::cat({first.slice(0, 0, length), second}).slice(1, b, b + 1);
    LSTM other = lstm;
    const auto [same, hidden] =
        other(alone, Hidden{torch::zeros({2, 1, kUnits}), torch::zeros({2, 1, kUnits})});
    EXPECT_LT(largest_difference(output.slice(1, b, b + 1), same.slice(0, length)), 1e-6);
  }
}

TEST_F(RecurrentState, FollowsTheTypeOfTheInput) {
  lstm->init_hidden(kBatch);
  run(first);
  lstm->to(at::kDouble);
  expect_continued(run(second.to(at::kDouble)));
}

}  // namespace
}  // namespace mezzo::rnn
