#include "mezzo/loss_scale.h"

#include <charconv>
#include <cmath>
#include <sstream>

#include "core/raise.h"

namespace mezzo::amp {
namespace {

constexpr std::string_view kInLossScale = "loss_scale";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

}  // namespace

double LossScale::checked(double value) {
  const auto as_float = static_cast<float>(value);
  if (!(as_float > 0) || !std::isfinite(as_float)) {
    raise<ConfigError>(kInLossScale, "got ", value,
                       "; expected a positive number that float can hold, or \"dynamic\"");
  }
  return value;
}

LossScale::LossScale(const std::string& text) {
  std::string_view number = trimmed(text);
  if (number == "dynamic") {
    dynamic_ = true;
    return;
  }
  if (number.starts_with('+')) number.remove_prefix(1);
  double value = 0;
  const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (failure != std::errc() || end != number.data() + number.size()) {
    raise<ConfigError>(kInLossScale, "got '", text, "'; expected a positive number or \"dynamic\"");
  }
  value_ = checked(value);
}

LossScale::LossScale(const char* text) : LossScale(std::string(text == nullptr ? "" : text)) {}

std::string LossScale::to_string() const {
  if (dynamic_) return "dynamic";
  std::ostringstream text;
  text << value_;
  return text.str();
}

}  // namespace mezzo::amp
