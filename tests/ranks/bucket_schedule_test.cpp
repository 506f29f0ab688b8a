#include "ranks/bucket_schedule.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <deque>
#include <numeric>
#include <random>
#include <thread>

namespace mezzo::ranks {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// `count` parameters of one element in buckets of `each`.
BucketPlan plan_of(int count, int each) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return plan_buckets(std::vector<PlannedParameter>(order.size(), PlannedParameter{1}), order,
                      each);
}

struct Recorded {
  std::vector<int> sent;
  BucketSchedule schedule;
  explicit Recorded(BucketPlan plan, bool delayed = false)
      : schedule(std::move(plan), delayed, [this](int bucket) { sent.push_back(bucket); }) {}
};

TEST(BucketSchedule, SendsABucketWhenItsLastGradientArrives) {
  Recorded r(plan_of(4, 2));
  r.schedule.begin(1);
  r.schedule.arrive(1);
  EXPECT_THAT(r.sent, IsEmpty());
  r.schedule.arrive(0);
  EXPECT_THAT(r.sent, ElementsAre(0));
}

TEST(BucketSchedule, AFullBucketWaitsForThoseBeforeIt) {
  Recorded r(plan_of(4, 2));
  r.schedule.begin(1);
  r.schedule.arrive(2);
  r.schedule.arrive(3);
  r.schedule.arrive(0);
  EXPECT_THAT(r.sent, IsEmpty());
  r.schedule.arrive(1);
  EXPECT_THAT(r.sent, ElementsAre(0, 1));
}

TEST(BucketSchedule, TheEndSendsWhatIsMissing) {
  Recorded r(plan_of(6, 2));
  r.schedule.begin(1);
  r.schedule.arrive(4);
  r.schedule.finish();
  EXPECT_THAT(r.sent, ElementsAre(0, 1, 2));
  EXPECT_TRUE(r.schedule.open());
  r.schedule.close();
  EXPECT_FALSE(r.schedule.open());
  EXPECT_TRUE(r.schedule.arrived(4));
  EXPECT_FALSE(r.schedule.arrived(0));
}

TEST(BucketSchedule, DelayedSendsNothingBeforeTheEnd) {
  Recorded r(plan_of(2, 1), true);
  r.schedule.begin(1);
  r.schedule.arrive(0);
  r.schedule.arrive(1);
  EXPECT_THAT(r.sent, IsEmpty());
  r.schedule.finish();
  EXPECT_THAT(r.sent, ElementsAre(0, 1));
}

TEST(BucketSchedule, ARepeatedArrivalIsHarmlessUntilItsBucketIsGone) {
  Recorded r(plan_of(2, 2));
  r.schedule.begin(1);
  EXPECT_EQ(r.schedule.arrive(0), BucketSchedule::Arrival::kCounted);
  EXPECT_EQ(r.schedule.arrive(0), BucketSchedule::Arrival::kRepeated);
  EXPECT_EQ(r.schedule.arrive(1), BucketSchedule::Arrival::kCounted);
  EXPECT_EQ(r.schedule.arrive(0), BucketSchedule::Arrival::kTooLate);
  EXPECT_THAT(r.sent, ElementsAre(0));
}

TEST(BucketSchedule, ABackwardThatNeverEndedIsNoticed) {
  Recorded r(plan_of(4, 2));
  EXPECT_FALSE(r.schedule.begin(1));
  r.schedule.arrive(0);
  r.schedule.arrive(1);
  EXPECT_EQ(r.schedule.next(), 1);
  EXPECT_TRUE(r.schedule.runs(1));
  EXPECT_FALSE(r.schedule.runs(2));
  EXPECT_TRUE(r.schedule.begin(2));
  EXPECT_EQ(r.schedule.next(), 0);
  r.schedule.finish();
  EXPECT_TRUE(r.schedule.begin(3));
  r.schedule.close();
  EXPECT_FALSE(r.schedule.begin(4));
}

TEST(BucketSchedule, ASendThatThrowsIsNotTriedTwice) {
  int sends = 0;
  BucketSchedule schedule(plan_of(1, 1), false, [&](int) {
    ++sends;
    throw std::runtime_error("the wire broke");
  });
  schedule.begin(1);
  EXPECT_THROW(schedule.arrive(0), std::runtime_error);
  schedule.finish();
  EXPECT_EQ(sends, 1);
}

TEST(BucketSchedule, ABucketWhoseAnnouncementThrowsWasNotSent) {
  std::vector<int> sent;
  BucketSchedule schedule(
      plan_of(2, 1), false, [&](int bucket) { sent.push_back(bucket); },
      [](int bucket) {
        if (bucket == 1) throw std::runtime_error("the others are elsewhere");
      });
  schedule.begin(1);
  EXPECT_THROW(schedule.finish(), std::runtime_error);
  EXPECT_THAT(sent, ElementsAre(0));
  EXPECT_EQ(schedule.next(), 1);
  schedule.skip();
  EXPECT_EQ(schedule.next(), 2);
}

TEST(BucketSchedule, TellsTheOrderOfArrival) {
  Recorded r(plan_of(4, 2));
  r.schedule.begin(1);
  r.schedule.arrive(3);
  r.schedule.arrive(1);
  r.schedule.finish();
  EXPECT_THAT(r.schedule.arrival_order(), ElementsAre(3, 1, 0, 2));
}

// A transport with a thread of its own, as Gloo has.
class FakeTransport {
 public:
  FakeTransport() : thread_([this] { work(); }) {}
  ~FakeTransport() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void send(int bucket) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back(bucket);
      ++pending_;
    }
    changed_.notify_all();
  }
  std::vector<int> wait_all() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return pending_ == 0; });
    return std::exchange(done_, {});
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      done_.push_back(queue_.front());
      queue_.pop_front();
      --pending_;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> queue_;
  std::vector<int> done_;
  int pending_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

TEST(BucketSchedule, SendsInOrderWhateverThreadsBringTheGradients) {
  constexpr int kParameters = 64;
  FakeTransport transport;
  BucketSchedule schedule(plan_of(kParameters, 5), false,
                          [&](int bucket) { transport.send(bucket); });
  for (int backward = 0; backward < 50; ++backward) {
    schedule.begin(backward);
    std::vector<std::thread> devices;
    for (int device = 0; device < 4; ++device) {
      devices.emplace_back([&, device] {
        std::vector<int> own;
        for (int p = device; p < kParameters; p += 4) own.push_back(p);
        std::shuffle(own.begin(), own.end(),
                     std::mt19937(static_cast<unsigned>(backward * 4 + device)));
        if (backward % 3 == 0) own.pop_back();
        for (int p : own) schedule.arrive(p);
      });
    }
    for (std::thread& device : devices) device.join();
    schedule.finish();
    const std::vector<int> sent = transport.wait_all();
    ASSERT_EQ(sent.size(), schedule.plan().buckets.size());
    EXPECT_TRUE(std::is_sorted(sent.begin(), sent.end()));
  }
}

}  // namespace
}  // namespace mezzo::ranks
