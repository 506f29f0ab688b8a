// A trace of ten steps.
#pragma once

#include <cstdint>
#include <string>

namespace examples::imagenet {

class Profile {
 public:
  static constexpr std::int64_t kSteps = 10;

  /// From step `first` (from 0) on; -1: never. An empty file's name: steps are counted alone.
  Profile(std::int64_t first, std::string file) : first_(first), file_(std::move(file)) {}

  /// Before each step. True once the steps are over and the trace is written.
  bool is_over();

 private:
  std::int64_t first_, step_ = 0;
  std::string file_;
};

}  // namespace examples::imagenet
