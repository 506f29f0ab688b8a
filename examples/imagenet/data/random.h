// Random numbers that follow from what they are for (SplitMix64), not from who asked before: the
// image at a place of an epoch is cut the same way by any number of workers and after any stop.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace examples::imagenet {

class Random {
 public:
  /// Equal keys give equal numbers.
  explicit Random(std::initializer_list<std::uint64_t> key) {
    for (const std::uint64_t part : key) state_ = mixed(state_ ^ mixed(part + kStep));
  }

  std::uint64_t next() { return mixed(state_ += kStep); }

  /// From 0 to below 1.
  double uniform() {
    constexpr int kUnused = 11;  // bits that a double cannot hold
    return static_cast<double>(next() >> kUnused) * 0x1p-53;
  }
  double uniform(double from, double to) { return from + (to - from) * uniform(); }

  /// From 0 to below `count`, each equally likely.
  std::uint64_t below(std::uint64_t count) {
    const std::uint64_t incomplete = (0 - count) % count;  // 2^64 modulo count
    std::uint64_t value = next();
    while (value < incomplete) value = next();
    return value % count;
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

  static std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  std::uint64_t state_ = 0;
};

}  // namespace examples::imagenet
