#include "streams.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <exception>
#include <utility>

#include "memory.h"

namespace mezzo::pretend {

Capture::~Capture() {
  for (const std::uint64_t piece : memory) Memory::all().give_back_captured(piece);
}

std::recursive_mutex& device_mutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

Streams& Streams::all() {
  static auto* streams = new Streams;  // tensors may still go while static objects do
  return *streams;
}

Streams::Streams() {
  const char* number = std::getenv("MEZZO_PRETEND_SEED");
  seed(number == nullptr ? 0 : std::strtoull(number, nullptr, 10));
}

void Streams::seed(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  order_.seed(number);
  lazy_ = number == 0;
}

void Streams::queue(const StreamName& name, Task task) {
  const std::lock_guard lock(mutex_);
  ++launches_;
  queue_quietly(name, std::move(task));
}

void Streams::queue_quietly(const StreamName& name, Task task) {
  const std::lock_guard lock(mutex_);
  Stream& stream = streams_[name];
  if (stream.capture) {
    stream.capture->tasks.push_back(std::move(task));
    if (name != stream.capture->origin) stream.capture->unfinished.insert(name);
    return;
  }
  stream.items.push_back({std::move(task), std::nullopt});
  ++stream.queued;
  let_time_pass();
}

Mark Streams::mark(const StreamName& name) {
  const std::lock_guard lock(mutex_);
  Stream& stream = streams_[name];
  Mark mark{name, stream.queued, stream.capture, stream.capture != nullptr};
  return mark;
}

void Streams::wait_on_stream(const StreamName& name, const Mark& mark) {
  const std::lock_guard lock(mutex_);
  Stream& stream = streams_[name];
  if (mark.in_capture) {
    const std::shared_ptr<Capture> capture = mark.capture.lock();
    TORCH_CHECK(capture != nullptr && capture == streams_[capture->origin].capture,
                "pretend CUDA: an event was last recorded in a capture that has ended");
    TORCH_CHECK(name.id != 0,
                "pretend CUDA: operation would make the legacy stream depend on a capturing "
                "blocking stream");
    TORCH_CHECK(stream.capture == nullptr || stream.capture == capture,
                "pretend CUDA: two captures would depend on each other");
    capture->unfinished.erase(mark.stream);
    if (stream.capture == nullptr) {
      stream.capture = capture;
      capture->joined.insert(name);
    }
    if (name != capture->origin) capture->unfinished.insert(name);
    return;
  }
  if (stream.capture) {
    TORCH_CHECK(passed(mark) || mark.stream == name || mark.place == 0,
                "pretend CUDA: dependency created on uncaptured work in another stream");
    return;
  }
  if (mark.stream == name) return;
  stream.items.push_back({nullptr, mark});
  ++stream.queued;
}

void Streams::run_first(Stream& stream) {
  Item item = std::move(stream.items.front());
  if (item.after) {
    run_until(item.after->stream, item.after->place);
    stream.items.pop_front();
    ++stream.done;
    return;
  }
  stream.items.pop_front();
  const bool outer = std::exchange(running_, true);
  try {
    item.task();
  } catch (const std::exception& error) {
    if (error_.empty()) error_ = error.what();
  }
  running_ = outer;
  ++stream.done;
}

void Streams::run_until(const StreamName& name, std::uint64_t place) {
  Stream& stream = streams_[name];
  while (stream.done < place && !stream.items.empty()) run_first(stream);
}

// A stream that nobody waits for goes on by itself, some of the time.
void Streams::let_time_pass() {
  if (lazy_ || running_) return;
  if (order_() % 4 != 0) return;
  auto chosen = streams_.begin();
  std::advance(chosen, static_cast<std::ptrdiff_t>(order_() % streams_.size()));
  Stream& stream = chosen->second;
  for (std::uint64_t count = order_() % 8; count > 0 && !stream.items.empty(); --count) {
    run_first(stream);
  }
}

void Streams::run_to(const Mark& mark) {
  const std::lock_guard lock(mutex_);
  let_time_pass();
  run_until(mark.stream, mark.place);
  raise_error();
}

void Streams::run_stream(const StreamName& name) {
  const std::lock_guard lock(mutex_);
  let_time_pass();
  run_until(name, streams_[name].queued);
  raise_error();
}

void Streams::run_device(int device) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, stream] : streams_) {
    if (name.device == device) run_until(name, stream.queued);
  }
  raise_error();
}

void Streams::run_all() {
  const std::lock_guard lock(mutex_);
  for (auto& [name, stream] : streams_) run_until(name, stream.queued);
  raise_error();
}

bool Streams::passed(const Mark& mark) {
  const std::lock_guard lock(mutex_);
  Stream& stream = streams_[mark.stream];
  if (stream.done >= mark.place) return true;
  if (!running_ && !stream.items.empty()) run_first(stream);
  return stream.done >= mark.place;
}

bool Streams::has_passed(const Mark& mark) {
  const std::lock_guard lock(mutex_);
  return streams_[mark.stream].done >= mark.place;
}

void Streams::begin(const StreamName& name, const std::shared_ptr<Capture>& capture) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(name.id != 0, "pretend CUDA: the legacy stream cannot be captured");
  TORCH_CHECK(!streams_[name].capture, "pretend CUDA: the stream is being captured already");
  capture->origin = name;
  streams_[name].capture = capture;
}

void Streams::end(const StreamName& name) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Capture> capture = std::move(streams_[name].capture);
  streams_[name].capture = nullptr;
  TORCH_CHECK(capture != nullptr, "pretend CUDA: the stream is not being captured");
  for (const StreamName& other : capture->joined) streams_[other].capture = nullptr;
  TORCH_CHECK(capture->broken.empty(), "pretend CUDA: capture failed: ", capture->broken);
  TORCH_CHECK(capture->unfinished.empty(),
              "pretend CUDA: a capture has a stream that was not joined to its first one");
}

std::shared_ptr<Capture> Streams::capture_of(const StreamName& name) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(name);
  return found == streams_.end() ? nullptr : found->second.capture;
}

bool Streams::any_capture() {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, stream] : streams_) {
    if (stream.capture) return true;
  }
  return false;
}

void Streams::refuse_in_capture(const char* what) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, stream] : streams_) {
    if (!stream.capture) continue;
    stream.capture->broken = what;
    TORCH_CHECK(false, "pretend CUDA: operation not permitted when a stream is capturing: ", what);
  }
}

void Streams::raise_error() {
  if (error_.empty()) return;
  const std::string error = std::exchange(error_, {});
  TORCH_CHECK(false, "pretend CUDA: a kernel that was queued earlier failed: ", error);
}

}  // namespace mezzo::pretend
