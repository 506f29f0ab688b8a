// The bandwidth that one thread gets: the yardsticks of what waits for memory.
#pragma once

#include <cstdint>
#include <vector>

namespace mezzo::bench {

/// Memory that is read, or read and written in place, by plain loops in the widest vectors that the
/// processor has.
class Memory {
 public:
  /// `bytes` in all, in four arrays.
  explicit Memory(std::int64_t bytes);

  /// Reads all of it once.
  void read() const;
  /// Reads all of it once and writes it back, four arrays at a time, as a fused step does.
  void update();

 private:
  std::vector<std::vector<float>> streams_;
};

/// Bytes per second, read and written, of update() over 800 MB: the best of some rounds.
double update_rate();

}  // namespace mezzo::bench
