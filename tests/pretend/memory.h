// The devices' memory: addresses that are a fault to the host, and the same bytes at others for
// kernels; and a caching allocator over it with the rules of LibTorch's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "streams.h"

namespace mezzo::pretend {

constexpr int kDevices = 2;

class Memory {
 public:
  static Memory& all();

  /// A piece for a stream, which is full of NaN when the stream gets there.
  void* allocate(std::size_t bytes, const StreamName&);
  /// A piece outside of captures and streams, as cudaMalloc gives it.
  void* allocate_for_ever(std::size_t bytes, int device);
  /// The stream may get it again at once, since its work is in order; others' marks are waited
  /// for.
  void free(void* address);
  /// The piece is used on this stream, too.
  void record_stream(void* address, const StreamName&);
  void give_back_captured(std::uint64_t offset);

  bool owns(const void* address) const;
  int device_of(const void* address) const;
  /// Where a kernel finds the bytes of an address.
  void* for_kernels(const void* address) const;

  std::size_t bytes_in_use(int device);
  std::size_t peak_bytes(int device);
  void reset_peak(int device);

  /// While it lives, the devices' own addresses can be used: for kernels of ours, whose
  /// descriptors hold them.
  class Opened {
   public:
    Opened();
    ~Opened();
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
  };

 private:
  struct Piece {
    std::size_t bytes = 0;
    StreamName stream;
    std::set<StreamName> used_on;
    bool live = false;
    bool captured = false;
  };
  struct Leaving {
    std::uint64_t offset = 0;
    std::vector<Mark> marks;
  };
  using Shelf = std::pair<StreamName, std::size_t>;

  Memory();
  std::uint64_t offset_of(const void* address) const;
  std::uint64_t fresh(std::size_t bytes, int device);
  void shelve(std::uint64_t offset);
  void take_in_what_left();
  void poison(std::uint64_t offset, const Piece&);
  void protect(bool open);

  std::byte* devices_ = nullptr;
  std::byte* kernels_ = nullptr;
  std::recursive_mutex& mutex_ = device_mutex();
  std::map<std::uint64_t, Piece> pieces_;
  std::map<Shelf, std::vector<std::uint64_t>> shelves_;
  std::vector<Leaving> leaving_;
  std::uint64_t next_[kDevices] = {};
  std::size_t in_use_[kDevices] = {};
  std::size_t peak_[kDevices] = {};
  int opened_ = 0;
};

}  // namespace mezzo::pretend
