#include "report/text.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace mezzo::report {

std::string fixed(double value, int decimals) {
  std::array<char, 400> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return {text.data(), static_cast<std::size_t>(length)};
}

std::string percent(double share) {
  return std::isnan(share) ? "-" : fixed(100 * share, 2) + " %";
}

std::string bytes(std::int64_t count) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(count);
  std::size_t unit = 0;
  while (std::abs(value) >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fixed(value, unit == 0 ? 0 : 1) + ' ' + kUnits[unit];
}

std::string milliseconds(double seconds) {
  const double value = 1000 * seconds;
  return fixed(value, value < 10 ? 2 : 1) + " ms";
}

std::string scale_text(double scale) {
  if (!(scale > 0) || std::isinf(scale)) return fixed(scale, 0);
  int exponent = 0;
  const bool power_of_two = std::frexp(scale, &exponent) == 0.5;
  if (power_of_two && (scale > 1e6 || scale < 1e-3)) return "2^" + std::to_string(exponent - 1);
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.6g", scale);
  return text.data();
}

std::string short_number(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

std::string clock(double seconds) {
  if (!(seconds >= 0) || seconds > 359999) return "-:--";
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  std::array<char, 40> text{};
  if (whole >= 3600) {
    std::snprintf(text.data(), text.size(), "%d:%02d:%02d", static_cast<int>(whole / 3600),
                  static_cast<int>(whole / 60 % 60), static_cast<int>(whole % 60));
  } else {
    std::snprintf(text.data(), text.size(), "%d:%02d", static_cast<int>(whole / 60),
                  static_cast<int>(whole % 60));
  }
  return text.data();
}

}  // namespace mezzo::report
