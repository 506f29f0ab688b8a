#include "counts.h"

#include <c10/util/Backtrace.h>

#include <mutex>

#include "device.h"
#include "streams.h"

namespace mezzo::pretend {
namespace {

struct Books {
  Counts counts;
  std::vector<std::string> stacks;
  int watches = 0;
};

Books& books() {
  static auto* all = new Books;
  return *all;
}

Counts now() {
  Counts counts = books().counts;
  counts.launches = Streams::all().launches();
  return counts;
}

}  // namespace

void count_wait(Wait kind, const std::string& what) {
  const std::lock_guard lock(device_mutex());
  Counts& counts = books().counts;
  if (kind == Wait::kEvent) {
    ++counts.event_waits;
    return;
  }
  ++counts.waits;
  if (kind == Wait::kScalar) ++counts.scalars;
  if (books().watches > 0) {
    books().stacks.push_back(what + "\n" + c10::get_backtrace(/*frames_to_skip=*/2));
  }
}

void count_copy_to_host(std::int64_t bytes) {
  const std::lock_guard lock(device_mutex());
  ++books().counts.copies_to_host;
  books().counts.bytes_to_host += bytes;
}

void count_copy_to_device(std::int64_t bytes) {
  const std::lock_guard lock(device_mutex());
  ++books().counts.copies_to_device;
  books().counts.bytes_to_device += bytes;
}

Watch::Watch() {
  const std::lock_guard lock(device_mutex());
  before_ = now();
  stacks_before_ = books().stacks.size();
  ++books().watches;
}

Watch::~Watch() {
  const std::lock_guard lock(device_mutex());
  --books().watches;
}

Counts Watch::counts() const {
  const std::lock_guard lock(device_mutex());
  const Counts after = now();
  return {.waits = after.waits - before_.waits,
          .event_waits = after.event_waits - before_.event_waits,
          .scalars = after.scalars - before_.scalars,
          .copies_to_host = after.copies_to_host - before_.copies_to_host,
          .copies_to_device = after.copies_to_device - before_.copies_to_device,
          .bytes_to_host = after.bytes_to_host - before_.bytes_to_host,
          .bytes_to_device = after.bytes_to_device - before_.bytes_to_device,
          .launches = after.launches - before_.launches};
}

std::vector<std::string> Watch::stacks() const {
  const std::lock_guard lock(device_mutex());
  const std::vector<std::string>& all = books().stacks;
  return {all.begin() + static_cast<std::ptrdiff_t>(stacks_before_), all.end()};
}

}  // namespace mezzo::pretend
