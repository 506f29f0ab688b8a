// Forwards beside the training, such as those that insight makes of a step that failed.
#pragma once

namespace mezzo::parallel {

/// While it lives, forwards of a DistributedDataParallel on this thread exchange nothing with other
/// ranks, which need not make any, and leave buckets as they are though parameters have another
/// type for a while. No backward pass may end in `grad` of a parameter then.
class Aside {
 public:
  Aside() noexcept { ++depth(); }
  ~Aside() { --depth(); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  static bool active() noexcept { return depth() > 0; }

 private:
  static int& depth() noexcept {
    static thread_local int count = 0;
    return count;
  }
};

}  // namespace mezzo::parallel
