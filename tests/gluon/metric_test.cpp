#include "mezzo/gluon_metric.h"

#include <gmock/gmock.h>

#include <cmath>

#include "gluon/judged.h"

namespace mezzo::gluon {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

at::Tensor judged_scores() {
  return torch::softmax(sines(60, 0.2, 2.0).reshape({12, 5}), 1);
}

TEST(Metric, ValuesAreMxnets) {
  metric::Loss loss("l");
  loss.update({}, {sines(12, 0.5, 1.0), sines(5, 1.5, 1.0)});
  metric::Accuracy accuracy;
  metric::TopKAccuracy top(3);
  metric::Perplexity perplexity, ignoring(2);
  const at::Tensor scores = judged_scores(), labels = torch::arange(12).remainder(5);
  for (metric::EvalMetric* each :
       std::initializer_list<metric::EvalMetric*>{&accuracy, &top, &perplexity, &ignoring}) {
    each->update({labels}, {scores});
    each->update({labels.slice(0, 0, 7)}, {scores.slice(0, 0, 7)});
  }
  const std::vector<double>& values = judged("metrics");
  EXPECT_NEAR(loss.get().second, values[0], 1e-6);
  EXPECT_NEAR(accuracy.get().second, values[1], 1e-6);
  EXPECT_NEAR(top.get().second, values[2], 1e-6);
  EXPECT_NEAR(perplexity.get().second, values[3], 1e-4);
  EXPECT_NEAR(ignoring.get().second, values[4], 1e-4);
  EXPECT_EQ(loss.get().first, "l");
  EXPECT_EQ(accuracy.get().first, "accuracy");
  EXPECT_EQ(top.get().first, "top_k_accuracy_3");
  EXPECT_EQ(perplexity.get().first, "perplexity");
}

TEST(Metric, NothingIsNaNAndResetForgets) {
  metric::Loss loss;
  EXPECT_TRUE(std::isnan(loss.get().second));
  loss.update({}, {torch::full({3}, 2.0)});
  EXPECT_DOUBLE_EQ(loss.get().second, 2);
  loss.reset();
  EXPECT_TRUE(std::isnan(loss.get().second));
  metric::Perplexity all_ignored(1);
  all_ignored.update({torch::ones({2}, at::kLong)}, {torch::full({2, 3}, 1.0 / 3)});
  EXPECT_TRUE(std::isnan(all_ignored.get().second));
}

TEST(Metric, LowLossesAreSummedExactly) {
  metric::Loss loss;
  for (int i = 0; i < 100; ++i) loss.update({}, {torch::full({1000}, 300.0, at::kHalf)});
  EXPECT_DOUBLE_EQ(loss.get().second, 300);
}

TEST(Metric, AccuracyTakesIndicesOrScoresAlongAnAxis) {
  metric::Accuracy accuracy(/*axis=*/-1, "mine");
  accuracy.update({torch::tensor({1, 0})}, {torch::tensor({1, 1})});
  EXPECT_EQ(accuracy.get(), std::make_pair(std::string("mine"), 0.5));
  accuracy.update({torch::tensor({2, 2}).reshape({1, 2})},
                  {torch::tensor({0.1, 0.2, 0.9, 0.8, 0.1, 0.1}).reshape({1, 2, 3})});
  EXPECT_DOUBLE_EQ(accuracy.get().second, 0.5);
}

TEST(Metric, ACompositeGivesAllNamesAndValues) {
  metric::CompositeEvalMetric both;
  const auto shared = std::make_shared<metric::Loss>("shared");
  both.add(metric::Accuracy());
  both.add(shared);
  const at::Tensor values = torch::tensor({1.0, 2.0});
  both.update({torch::tensor({1, 1})}, {values});
  EXPECT_EQ(both.get().first, (std::vector<std::string>{"accuracy", "shared"}));
  EXPECT_EQ(both.get().second, (std::vector<double>{0.5, 1.5}));
  EXPECT_DOUBLE_EQ(shared->get().second, 1.5);
  EXPECT_DOUBLE_EQ(both.get_metric(0).get().second, 0.5);
  EXPECT_THROW(both.get_metric(2), ConfigError);
  both.reset();
  EXPECT_TRUE(std::isnan(shared->get().second));
}

TEST(Metric, WhatDoesNotFitIsAnErrorAndNotCounted) {
  const auto message = [](const char* text) { return ThrowsMessage<ConfigError>(HasSubstr(text)); };
  metric::Accuracy accuracy;
  const at::Tensor scores = torch::ones({2, 3}), labels = torch::zeros({2}, at::kLong);
  EXPECT_THAT([&] { accuracy.update({}, {scores}); }, message("0 labels and 1"));
  EXPECT_THAT(
      [&] {
        accuracy.update({labels, labels.slice(0, 1)}, {scores, scores});
      },
      message("expected 2 labels"));
  EXPECT_THAT([&] { accuracy.update({labels.slice(0, 1)}, {torch::ones({2})}); },
              message("axis is 1"));
  EXPECT_TRUE(std::isnan(accuracy.get().second));
  EXPECT_THAT([] { metric::TopKAccuracy{1}; }, message("Accuracy is for 1"));
  metric::TopKAccuracy top(4);
  EXPECT_THAT([&] { top.update({labels}, {scores}); }, message("top_k 4"));
  metric::Perplexity perplexity;
  EXPECT_THAT([&] { perplexity.update({labels.slice(0, 1)}, {scores}); },
              message("expected 2 labels"));
}

}  // namespace
}  // namespace mezzo::gluon
