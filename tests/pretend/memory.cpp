#include "memory.h"

#include <c10/util/Exception.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

namespace mezzo::pretend {
namespace {

constexpr std::uint64_t kBytes = 1ULL << 36;  // of each device, most of which nobody touches
constexpr std::size_t kAlignment = 512;
constexpr std::int64_t kNoStream = -1;

std::byte* first_address = nullptr;
struct sigaction usual_fault;

// Async-signal-safe but for the symbols, and the process ends after it.
void explain_fault(int signal, siginfo_t* info, void* context) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  if (address >= first_address && address < first_address + kDevices * kBytes) {
    constexpr const char kText[] =
        "pretend CUDA: the host touched memory of a device; the stack:\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
    void* frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  }
  sigaction(signal, &usual_fault, nullptr);
  if (usual_fault.sa_flags & SA_SIGINFO && usual_fault.sa_sigaction != nullptr) {
    usual_fault.sa_sigaction(signal, info, context);
  }
}

std::size_t rounded(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Memory& Memory::all() {
  static auto* memory = new Memory;
  return *memory;
}

Memory::Memory() {
  const int file = memfd_create("pretend CUDA", MFD_CLOEXEC);
  constexpr std::uint64_t kAll = kDevices * kBytes;
  TORCH_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(kAll)) == 0,
              "pretend CUDA: no memory file");
  const auto map = [&](int rights) {
    void* address = mmap(nullptr, kAll, rights, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(address != MAP_FAILED, "pretend CUDA: no room for the devices' addresses");
    return static_cast<std::byte*>(address);
  };
  devices_ = map(PROT_NONE);
  kernels_ = map(PROT_READ | PROT_WRITE);
  close(file);
  for (int device = 0; device < kDevices; ++device) {
    next_[device] = static_cast<std::uint64_t>(device) * kBytes;
  }
  first_address = devices_;
  struct sigaction fault {};
  fault.sa_sigaction = explain_fault;
  fault.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &fault, &usual_fault);
}

std::uint64_t Memory::offset_of(const void* address) const {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - devices_);
}

bool Memory::owns(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= devices_ && at < devices_ + kDevices * kBytes;
}

int Memory::device_of(const void* address) const {
  return static_cast<int>(offset_of(address) / kBytes);
}

void* Memory::for_kernels(const void* address) const {
  if (address == nullptr) return nullptr;
  TORCH_CHECK(owns(address), "pretend CUDA: a kernel got an address of the host");
  return kernels_ + offset_of(address);
}

std::uint64_t Memory::fresh(std::size_t bytes, int device) {
  const std::uint64_t offset = next_[device];
  const std::uint64_t end = static_cast<std::uint64_t>(device + 1) * kBytes;
  // Each piece has a page before the next, so that few mistakes stay within what is mapped.
  TORCH_CHECK(offset + bytes + kAlignment <= end, "CUDA out of memory (pretend device)");
  next_[device] = offset + bytes + kAlignment;
  return offset;
}

void* Memory::allocate(std::size_t bytes, const StreamName& stream) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  take_in_what_left();
  const std::size_t size = rounded(bytes);
  const std::shared_ptr<Capture> capture = Streams::all().capture_of(stream);
  std::vector<std::uint64_t>& shelf = shelves_[{stream, size}];
  std::uint64_t offset = 0;
  if (capture == nullptr && !shelf.empty()) {
    offset = shelf.back();
    shelf.pop_back();
  } else {
    offset = fresh(size, stream.device);
  }
  Piece& piece = pieces_[offset] = {
      .bytes = size, .stream = stream, .used_on = {}, .live = true, .captured = false};
  if (capture) {
    piece.captured = true;
    capture->memory.push_back(offset);
  }
  in_use_[stream.device] += size;
  peak_[stream.device] = std::max(peak_[stream.device], in_use_[stream.device]);
  poison(offset, piece);
  return devices_ + offset;
}

void* Memory::allocate_for_ever(std::size_t bytes, int device) {
  const std::lock_guard lock(mutex_);
  const std::size_t size = rounded(bytes);
  const std::uint64_t offset = fresh(size, device);
  pieces_[offset] = {.bytes = size, .stream = {device, kNoStream}, .used_on = {}, .live = true};
  in_use_[device] += size;
  std::memset(kernels_ + offset, 0xff, size);
  return devices_ + offset;
}

void Memory::poison(std::uint64_t offset, const Piece& piece) {
  std::byte* at = kernels_ + offset;
  const std::size_t bytes = piece.bytes;
  Streams::all().queue_quietly(piece.stream, [at, bytes] { std::memset(at, 0xff, bytes); });
}

void Memory::free(void* address) {
  if (address == nullptr) return;
  const std::lock_guard lock(mutex_);
  const std::uint64_t offset = offset_of(address);
  Piece& piece = pieces_.at(offset);
  piece.live = false;
  in_use_[piece.stream.device] -= piece.bytes;
  if (piece.captured) return;
  piece.used_on.erase(piece.stream);
  if (piece.used_on.empty()) return shelve(offset);
  Leaving leaving{offset, {}};
  for (const StreamName& other : piece.used_on) leaving.marks.push_back(Streams::all().mark(other));
  leaving_.push_back(std::move(leaving));
}

void Memory::shelve(std::uint64_t offset) {
  const Piece& piece = pieces_.at(offset);
  shelves_[{piece.stream, piece.bytes}].push_back(offset);
}

void Memory::take_in_what_left() {
  std::erase_if(leaving_, [&](const Leaving& leaving) {
    const bool gone = std::all_of(leaving.marks.begin(), leaving.marks.end(),
                                  [](const Mark& mark) { return Streams::all().has_passed(mark); });
    if (gone) shelve(leaving.offset);
    return gone;
  });
}

void Memory::give_back_captured(std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  Piece& piece = pieces_.at(offset);
  piece.captured = false;
  if (!piece.live) shelve(offset);
}

void Memory::record_stream(void* address, const StreamName& stream) {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(offset_of(address));
  if (found != pieces_.end()) found->second.used_on.insert(stream);
}

std::size_t Memory::bytes_in_use(int device) {
  const std::lock_guard lock(mutex_);
  return in_use_[device];
}

std::size_t Memory::peak_bytes(int device) {
  const std::lock_guard lock(mutex_);
  return peak_[device];
}

void Memory::reset_peak(int device) {
  const std::lock_guard lock(mutex_);
  peak_[device] = in_use_[device];
}

void Memory::protect(bool open) {
  const int rights = open ? PROT_READ | PROT_WRITE : PROT_NONE;
  for (int device = 0; device < kDevices; ++device) {
    const std::uint64_t begin = static_cast<std::uint64_t>(device) * kBytes;
    if (next_[device] == begin) continue;
    const std::size_t used = (next_[device] - begin + 4095) / 4096 * 4096;
    TORCH_CHECK(mprotect(devices_ + begin, used, rights) == 0, "pretend CUDA: mprotect failed");
  }
}

Memory::Opened::Opened() {
  Memory& memory = all();
  const std::lock_guard lock(memory.mutex_);
  if (memory.opened_++ == 0) memory.protect(true);
}

Memory::Opened::~Opened() {
  Memory& memory = all();
  const std::lock_guard lock(memory.mutex_);
  if (--memory.opened_ == 0) memory.protect(false);
}

}  // namespace mezzo::pretend
