#include "ranks/bucket_schedule.h"

#include <utility>

namespace mezzo::ranks {

BucketSchedule::BucketSchedule(BucketPlan plan, bool delayed, Send send, Send announce)
    : plan_(std::move(plan)),
      delayed_(delayed),
      send_(std::move(send)),
      announce_(std::move(announce)) {
  arrived_.assign(plan_.bucket_of.size(), false);
}

bool BucketSchedule::begin(std::int64_t backward) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool abandoned = open_;
  backward_ = backward;
  open_ = true;
  next_ = 0;
  order_.clear();
  arrived_.assign(arrived_.size(), false);
  missing_.clear();
  for (const Bucket& bucket : plan_.buckets) {
    missing_.push_back(static_cast<int>(bucket.parameters.size()));
  }
  return abandoned;
}

bool BucketSchedule::runs(std::int64_t backward) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return open_ && backward_ == backward;
}

bool BucketSchedule::open() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return open_;
}

BucketSchedule::Arrival BucketSchedule::arrive(int parameter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto index = static_cast<std::size_t>(parameter);
  const int bucket = plan_.bucket_of[index];
  if (arrived_[index]) return bucket < next_ ? Arrival::kTooLate : Arrival::kRepeated;
  arrived_[index] = true;
  order_.push_back(parameter);
  --missing_[static_cast<std::size_t>(bucket)];
  if (!delayed_) send_ready(false);
  return Arrival::kCounted;
}

void BucketSchedule::finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  send_ready(true);
}

void BucketSchedule::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = false;
}

void BucketSchedule::skip() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++next_;
}

void BucketSchedule::send_ready(bool all) {
  while (next_ < static_cast<int>(plan_.buckets.size()) &&
         (all || missing_[static_cast<std::size_t>(next_)] == 0)) {
    if (announce_) announce_(next_);
    // Counted before it is sent: a send that throws must not be tried twice.
    send_(next_++);
  }
}

int BucketSchedule::next() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return next_;
}

std::vector<int> BucketSchedule::arrival_order() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int> order = order_;
  for (const Bucket& bucket : plan_.buckets) {
    for (int parameter : bucket.parameters) {
      if (!arrived_[static_cast<std::size_t>(parameter)]) order.push_back(parameter);
    }
  }
  return order;
}

bool BucketSchedule::arrived(int parameter) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return arrived_[static_cast<std::size_t>(parameter)];
}

}  // namespace mezzo::ranks
