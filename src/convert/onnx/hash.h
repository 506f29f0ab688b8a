// FNV-1a over texts and numbers: the same on every machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace mezzo::convert {

class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) step(static_cast<unsigned char>(c));
    step(0xFF);
  }
  void add(std::int64_t number) {
    for (int i = 0; i < 8; ++i) step(static_cast<unsigned char>(number >> (8 * i)));
  }
  std::uint64_t value() const { return state_; }

 private:
  void step(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001B3ULL; }
  std::uint64_t state_ = 0xCBF29CE484222325ULL;
};

}  // namespace mezzo::convert
