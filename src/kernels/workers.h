// The threads that run the pieces of a list: this one, or a pool that the layer above brings along.
#pragma once

#include <cstdint>

namespace mezzo::kernels {

/// A callable that is not owned: run(begin, end) does items begin to end - 1.
class Task {
 public:
  template <typename F>
  Task(const F& function)  // NOLINT(google-explicit-constructor): a reference to any lambda
      : self_(&function), call_([](const void* self, std::int64_t begin, std::int64_t end) {
          (*static_cast<const F*>(self))(begin, end);
        }) {}
  void operator()(std::int64_t begin, std::int64_t end) const { call_(self_, begin, end); }

 private:
  const void* self_;
  void (*call_)(const void*, std::int64_t, std::int64_t);
};

class Workers {
 public:
  virtual ~Workers() = default;
  /// Runs the task over all items, in parts of at least one, and returns when all are done.
  virtual void run(std::int64_t items, const Task& task) const = 0;
  /// Work on fewer elements than this is done sooner than other threads are awake.
  virtual std::int64_t worth_sharing() const { return 0; }
  /// run(), where the items have so many elements in all that it is worth it; else this thread does
  /// them.
  void share(std::int64_t items, std::int64_t elements, const Task& task) const {
    if (elements >= worth_sharing()) {
      run(items, task);
    } else if (items > 0) {
      task(0, items);
    }
  }
};

/// The calling thread alone.
class OneWorker final : public Workers {
 public:
  void run(std::int64_t items, const Task& task) const override {
    if (items > 0) task(0, items);
  }
};

}  // namespace mezzo::kernels
