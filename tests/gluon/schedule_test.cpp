#include "mezzo/gluon_schedule.h"

#include <gmock/gmock.h>

#include "gluon/judged.h"

namespace mezzo::gluon {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// The judge's three warm-ups: none, linear, constant.
template <typename Scheduler, typename Options>
void expect_judged_rates(const std::string& name, Options options) {
  options.base_lr = 0.1;
  for (const std::string suffix : {"", "_warm", "_flat"}) {
    if (!suffix.empty()) {
      options.warmup_steps = 10;
      options.warmup_begin_lr = 0.01;
      options.warmup_mode = suffix == "_flat" ? "constant" : "linear";
    }
    const Scheduler scheduler(options);
    const std::vector<double>& rates = judged(name + suffix + ".rates");
    ASSERT_EQ(rates.size(), 100);
    for (std::size_t i = rates.size(); i-- > 0;) {
      EXPECT_NEAR(scheduler(static_cast<std::int64_t>(i) + 1), rates[i], 1e-9)
          << name << suffix << " at " << i;
    }
  }
}

TEST(Schedule, RatesAreMxnetsInAnyOrder) {
  expect_judged_rates<FactorScheduler>(
      "factor", FactorSchedulerOptions{.step = 15, .factor = 0.5, .stop_factor_lr = 0.002});
  expect_judged_rates<MultiFactorScheduler>(
      "multifactor", MultiFactorSchedulerOptions{.steps = {20, 50, 51}, .factor = 0.3});
  expect_judged_rates<PolyScheduler>(
      "poly", PolySchedulerOptions{.max_update = 80, .pwr = 2, .final_lr = 0.001});
  expect_judged_rates<CosineScheduler>("cosine",
                                       CosineSchedulerOptions{.max_update = 80, .final_lr = 0.001});
}

TEST(Schedule, AnExplicitBaseRateMovesWarmUpAsWell) {
  PolyScheduler poly({.max_update = 30, .base_lr = 0.1, .warmup_steps = 10});
  poly.set_base_lr(0.4);
  EXPECT_DOUBLE_EQ(poly(5), 0.2);
  EXPECT_DOUBLE_EQ(poly(10), 0.4);
  EXPECT_DOUBLE_EQ(poly(20), 0.1);
  EXPECT_DOUBLE_EQ(poly(99), 0.0);
  EXPECT_THAT([&] { poly.set_base_lr(-1); },
              ThrowsMessage<ConfigError>(HasSubstr("warmup_begin_lr")));
  EXPECT_DOUBLE_EQ(poly.base_lr(), 0.4);
}

TEST(Schedule, StopsAtTheLeastRate) {
  const MultiFactorScheduler multi(
      {.steps = {1, 2, 3}, .factor = 0.1, .stop_factor_lr = 0.005, .base_lr = 1});
  EXPECT_DOUBLE_EQ(multi(1), 1);
  EXPECT_DOUBLE_EQ(multi(3), 0.01);
  EXPECT_DOUBLE_EQ(multi(4), 0.005);
}

TEST(Schedule, WrongOptionsAreErrors) {
  const auto message = [](const char* text) { return ThrowsMessage<ConfigError>(HasSubstr(text)); };
  EXPECT_THAT([] { FactorScheduler({.step = 0}); }, message("step is 0"));
  EXPECT_THAT([] { FactorScheduler({.factor = 1.5}); }, message("factor is 1.5"));
  EXPECT_THAT([] { MultiFactorScheduler({}); }, message("steps must be"));
  EXPECT_THAT([] { MultiFactorScheduler({.steps = {3, 3}}); }, message("steps must be"));
  EXPECT_THAT([] { MultiFactorScheduler({.steps = {0, 3}}); }, message("steps must be"));
  EXPECT_THAT([] { PolyScheduler({.max_update = 0}); }, message("max_update is 0"));
  EXPECT_THAT([] { CosineScheduler({.max_update = 5, .warmup_steps = 5}); }, message("5 updates"));
  EXPECT_THAT([] { CosineScheduler({.max_update = 5, .warmup_mode = "cubic"}); },
              message("'cubic'"));
  EXPECT_THAT([] { PolyScheduler({.max_update = 5, .warmup_steps = -1}); }, message("-1"));
  EXPECT_THAT([] { PolyScheduler({.max_update = 5, .base_lr = 0.1, .warmup_begin_lr = 0.2}); },
              message("base_lr is 0.1"));
}

}  // namespace
}  // namespace mezzo::gluon
