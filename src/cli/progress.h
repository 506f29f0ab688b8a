// A line on standard error that says how far a long command is.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "platform/machine.h"

namespace mezzo::cli {

/// Appears after two seconds, on a terminal only, and is gone when this object is.
class ProgressBar {
 public:
  void show(std::string_view what, double share) {
    const auto now = Clock::now();
    if (!is_terminal_ || now - begin_ < std::chrono::seconds(2)) return;
    if (is_shown_ && now - last_ < std::chrono::milliseconds(100)) return;
    constexpr int kWidth = 30;
    const int done = static_cast<int>(share * kWidth);
    const std::string bar = std::string(static_cast<std::size_t>(done), '#') +
                            std::string(static_cast<std::size_t>(kWidth - done), '.');
    std::fprintf(stderr, "\r\x1b[K[%s] %3d %% %.*s", bar.c_str(), static_cast<int>(share * 100),
                 static_cast<int>(what.size()), what.data());
    std::fflush(stderr);
    is_shown_ = true;
    last_ = now;
  }
  ProgressBar() = default;
  ~ProgressBar() {
    if (is_shown_) std::fputs("\r\x1b[K", stderr);
  }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now(), last_;
  bool is_terminal_ = platform::is_terminal(2), is_shown_ = false;
};

}  // namespace mezzo::cli
