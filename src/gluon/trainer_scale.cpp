#include "gluon/trainer_scale.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "core/raise.h"
#include "mezzo/messages.h"

namespace mezzo::gluon {
namespace {

void say_scale(const char* direction, double scale) {
  std::array<char, 64> text{};
  (void)std::snprintf(text.data(), text.size(), "AMP: %s loss scale to %f", direction, scale);
  send_message(text.data());
}

}  // namespace

TrainerScaler::TrainerScaler(const TrainerScale& options)
    : lags_(options.timing == ScaleTiming::kMxnet) {
  constexpr const char* kInitTrainer = "gluon::init_trainer";
  const bool scales_fit = std::isfinite(options.init_scale) && options.init_scale > 0 &&
                          std::isfinite(options.max_scale) &&
                          options.init_scale <= options.max_scale;
  if (!scales_fit) {
    raise<ConfigError>(kInitTrainer, "init_scale is ", options.init_scale, " and max_scale ",
                       options.max_scale, "; expected 0 < init_scale <= max_scale");
  }
  if (options.window < 1) {
    raise<ConfigError>(kInitTrainer, "window is ", options.window, "; expected 1 or more");
  }
  rules_.dynamic = !options.loss_scale || options.loss_scale->is_dynamic();
  rules_.growth_interval = options.window;
  rules_.ceiling = options.max_scale;
  if (lags_) {
    rules_.floor = 0x1p-126;
    rules_.patience = 0;
  }
  const double first = rules_.dynamic ? options.init_scale : options.loss_scale->value();
  numbers_.scale = numbers_.next = scaling::first_scale(first, rules_);
}

void TrainerScaler::set_numbers(const ScaleNumbers& numbers) {
  if (!rules_.dynamic) return;
  numbers_ = numbers;
  if (!lags_) numbers_.scale = numbers_.next;
}

void TrainerScaler::advance(bool overflow) {
  const double before = numbers_.next;
  const scaling::ScaleState decided =
      scaling::advance({before, numbers_.unskipped, numbers_.stuck}, overflow, rules_);
  numbers_ = {lags_ ? before : decided.scale, decided.scale, decided.unskipped,
              decided.stuck_at_floor};
  if (decided.scale < before) say_scale("decreasing", decided.scale);
  if (decided.scale > before) say_scale("increasing", decided.scale);
}

bool TrainerScaler::exhausted() const {
  return scaling::exhausted({numbers_.next, numbers_.unskipped, numbers_.stuck}, rules_);
}

}  // namespace mezzo::gluon
