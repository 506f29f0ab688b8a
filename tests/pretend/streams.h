// Queues of work, events between them, and captures.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace mezzo::pretend {

struct StreamName {
  int device = 0;
  std::int64_t id = 0;
  auto operator<=>(const StreamName&) const = default;
};

/// A place in a stream: everything that was queued before it.
struct Mark {
  StreamName stream;
  std::uint64_t place = 0;
  /// The capture in which it was recorded, if any: then it is no place in a stream.
  std::weak_ptr<struct Capture> capture;
  bool in_capture = false;
};

/// One lock for queues and memory, since each asks the other.
std::recursive_mutex& device_mutex();

using Task = std::function<void()>;

/// The work of one capture, in the order in which it was queued.
struct Capture {
  StreamName origin;
  std::uint64_t number = 0;  // no other's
  std::vector<Task> tasks;
  std::set<StreamName> joined;        // streams that wait for captured events
  std::set<StreamName> unfinished;    // those of them that nobody waited for since
  std::vector<std::uint64_t> memory;  // of its own, given back when it goes
  std::string broken;
  ~Capture();
};

/// Everything that is queued on the devices. All functions may be called from any thread.
class Streams {
 public:
  static Streams& all();

  void seed(std::uint64_t);
  void queue(const StreamName&, Task);
  /// As above, but no launch of somebody's.
  void queue_quietly(const StreamName&, Task);
  Mark mark(const StreamName&);
  /// Work that is queued on the stream from now on comes after the mark.
  void wait_on_stream(const StreamName&, const Mark&);
  /// Runs what the mark stands for.
  void run_to(const Mark&);
  void run_stream(const StreamName&);
  void run_device(int device);
  void run_all();
  /// Has it come to pass? Asking lets time pass.
  bool passed(const Mark&);
  /// The same without that.
  bool has_passed(const Mark&);

  void begin(const StreamName&, const std::shared_ptr<Capture>&);
  void end(const StreamName&);
  std::shared_ptr<Capture> capture_of(const StreamName&);
  bool any_capture();
  /// Raises where a capture forbids what waits for the device.
  void refuse_in_capture(const char* what);

  /// The first error of a task that ran; raised by the next that waits.
  void raise_error();
  std::int64_t launches() const { return launches_; }

 private:
  Streams();

  struct Item {
    Task task;  // empty: a wait
    std::optional<Mark> after;
  };
  struct Stream {
    std::deque<Item> items;
    std::uint64_t done = 0;    // items that have run
    std::uint64_t queued = 0;  // items ever
    std::shared_ptr<Capture> capture;
  };

  void run_first(Stream&);
  void run_until(const StreamName&, std::uint64_t place);
  void let_time_pass();

  std::recursive_mutex& mutex_ = device_mutex();
  std::map<StreamName, Stream> streams_;
  std::mt19937_64 order_;
  bool lazy_ = true;
  bool running_ = false;
  std::int64_t launches_ = 0;
  std::uint64_t captures_ = 0;  // that were begun
  std::string error_;
};

}  // namespace mezzo::pretend
