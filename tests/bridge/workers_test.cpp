#include "bridge/workers.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace mezzo::bridge {
namespace {

/// LibTorch's number of threads, given back at the end.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

std::size_t threads_that_ran(std::int64_t items) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  torch_workers().run(items, [&](std::int64_t, std::int64_t) {
    const std::scoped_lock lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  return ids.size();
}

TEST(TorchWorkers, AreAsManyAsLibTorchsThreads) {
#if defined(__clang__)
  GTEST_SKIP() << "built without OpenMP, see MezzoCompiler.cmake";
#endif
  for (const int count : {2, 3}) {
    const Threads threads(count);
    EXPECT_EQ(threads_that_ran(64), count);
  }
}

TEST(TorchWorkers, AreNoMoreThanItems) {
  const Threads threads(4);
  EXPECT_EQ(threads_that_ran(1), 1);
  EXPECT_LE(threads_that_ran(2), 2);
  EXPECT_EQ(threads_that_ran(0), 0);
}

TEST(TorchWorkers, LeaveWhatIsSoonDoneToTheCaller) {
  const Threads threads(2);
  for (const bool much : {false, true}) {
    std::atomic<int> parts = 0;
    torch_workers().share(64, much ? 1 << 20 : 1000, [&](std::int64_t begin, std::int64_t end) {
      ++parts;
      if (!much) {
        EXPECT_EQ(begin, 0);
        EXPECT_EQ(end, 64);
      }
    });
    EXPECT_GE(parts, 1);
  }
  torch_workers().share(0, 0, [](std::int64_t, std::int64_t) { FAIL(); });
}

TEST(TorchWorkers, DoEveryItemOnce) {
  for (const int count : {1, 2, 5}) {
    const Threads threads(count);
    for (const std::int64_t items : {1, 2, 3, 7, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(items));
      torch_workers().run(items, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++done[static_cast<std::size_t>(i)];
      });
      for (const auto& times : done) EXPECT_EQ(times, 1);
    }
  }
}

TEST(TorchWorkers, HandOnAnException) {
  const Threads threads(2);
  EXPECT_THROW(torch_workers().run(
                   8, [](std::int64_t, std::int64_t) { throw std::runtime_error("of a part"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace mezzo::bridge
