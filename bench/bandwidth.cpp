#include "bandwidth.h"

#include <algorithm>
#include <chrono>

#if defined(__x86_64__)
#define MEZZO_WIDE(set) __attribute__((target(set)))
#endif

namespace mezzo::bench {
namespace {

using Words = std::int32_t __attribute__((vector_size(64)));
using Floats = float __attribute__((vector_size(64)));

template <typename T>
inline T load(const float* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof(T));
  return value;
}

// Written once and compiled for each instruction set: the attribute of the caller decides.
#define MEZZO_READ_LOOP                                        \
  Words seen[4] = {};                                          \
  for (std::int64_t i = 0; i + 64 <= count; i += 64) {         \
    seen[0] |= load<Words>(data + i);                          \
    seen[1] |= load<Words>(data + i + 16);                     \
    seen[2] |= load<Words>(data + i + 32);                     \
    seen[3] |= load<Words>(data + i + 48);                     \
  }                                                            \
  const Words all = (seen[0] | seen[1]) | (seen[2] | seen[3]); \
  return all[0]
#define MEZZO_UPDATE_LOOP                                         \
  for (std::int64_t i = 0; i + 16 <= count; i += 16) {            \
    for (int stream = 0; stream < 4; ++stream) {                  \
      const Floats value = load<Floats>(data[stream] + i) * 0.5F; \
      __builtin_memcpy(data[stream] + i, &value, sizeof(value));  \
    }                                                             \
  }

std::int32_t read_plain(const float* data, std::int64_t count) {
  MEZZO_READ_LOOP;
}
void update_plain(float* const* data, std::int64_t count){MEZZO_UPDATE_LOOP}
#if defined(__x86_64__)
MEZZO_WIDE("avx2") std::int32_t read_avx2(const float* data, std::int64_t count) {
  MEZZO_READ_LOOP;
}
MEZZO_WIDE("avx2")
void update_avx2(float* const* data,
                 std::int64_t count){MEZZO_UPDATE_LOOP} MEZZO_WIDE("avx512f") std::int32_t
    read_avx512(const float* data, std::int64_t count) {
  MEZZO_READ_LOOP;
}
MEZZO_WIDE("avx512f") void update_avx512(float* const* data, std::int64_t count) {
  MEZZO_UPDATE_LOOP
}
#endif

struct Loops {
  std::int32_t (*read)(const float*, std::int64_t) = read_plain;
  void (*update)(float* const*, std::int64_t) = update_plain;
};

Loops widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {read_avx512, update_avx512};
  if (__builtin_cpu_supports("avx2")) return {read_avx2, update_avx2};
#endif
  return {};
}

volatile std::int32_t kept = 0;  // what is read must seem to be wanted

}  // namespace

Memory::Memory(std::int64_t bytes)
    : streams_(4, std::vector<float>(static_cast<std::size_t>(bytes / 16), 0.0F)) {}

void Memory::read() const {
  const Loops loops = widest();
  for (const std::vector<float>& stream : streams_) {
    kept = loops.read(stream.data(), static_cast<std::int64_t>(stream.size()));
  }
}

void Memory::update() {
  float* const data[] = {streams_[0].data(), streams_[1].data(), streams_[2].data(),
                         streams_[3].data()};
  widest().update(data, static_cast<std::int64_t>(streams_[0].size()));
}

double update_rate() {
  constexpr std::int64_t kBytes = 400 << 20;
  Memory memory(kBytes);
  double best = 1e9;
  for (int i = 0; i < 7; ++i) {
    const auto start = std::chrono::steady_clock::now();
    memory.update();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return 2.0 * static_cast<double>(kBytes) / best;
}

}  // namespace mezzo::bench
