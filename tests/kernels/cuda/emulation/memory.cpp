#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "state.h"

namespace mezzo_emulated {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 64;
constexpr unsigned char kUnwritten = 0xff;

std::size_t up_to(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

/// One piece: the pages between two that nobody may touch, and the bytes that were asked for.
struct Piece {
  unsigned char* pages;
  std::size_t size;
  unsigned char* begin;
  std::size_t bytes;

  bool is_whole() const {
    const auto untouched = [](const unsigned char* from, const unsigned char* to) {
      return std::all_of(from, to, [](unsigned char byte) { return byte == kUnwritten; });
    };
    return untouched(pages, begin) && untouched(begin + bytes, pages + size);
  }
};

std::mutex mutex;
std::unordered_map<void*, Piece> pieces;

[[noreturn]] void end_program(const char* why) {
  std::fprintf(stderr, "emulated device memory: %s\n", why);
  std::abort();
}

}  // namespace

void* allocate(std::size_t bytes) {
  const std::size_t size = std::max(up_to(bytes, kPage), kPage);
  void* whole = mmap(nullptr, size + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) return nullptr;
  auto* pages = static_cast<unsigned char*>(whole) + kPage;
  if (mprotect(pages, size, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memset(pages, kUnwritten, size);
  unsigned char* begin = pages + size - std::max(up_to(bytes, kAlignment), kAlignment);
  const std::lock_guard lock(mutex);
  pieces[begin] = {pages, size, begin, bytes};
  return begin;
}

void release(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(mutex);
  const auto found = pieces.find(memory);
  if (found == pieces.end()) end_program("what is freed was not allocated");
  const Piece piece = found->second;
  if (!piece.is_whole()) end_program("somebody wrote beside what was allocated");
  pieces.erase(found);
  munmap(piece.pages - kPage, piece.size + 2 * kPage);
}

int pieces_of_memory() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(pieces.size());
}

}  // namespace mezzo_emulated
