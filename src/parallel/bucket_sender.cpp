#include "parallel/bucket_sender.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>

#include "parallel/group.h"
#include "parallel/session.h"

namespace mezzo::parallel {

template <class Call>
auto BucketSender::guarded(int bucket, const Call& call) const {
  if (group_.size() == 1) return call();
  const std::string what = "the communication hook, for bucket " + std::to_string(bucket) + ",";
  try {
    return call();
  } catch (const std::exception& failure) {
    group_.internals().session()->fail(what, text_of(failure));
  } catch (...) {
    group_.internals().session()->fail(what, "it threw what is no std::exception");
  }
}

std::int64_t BucketSender::bytes_of(const at::Tensor& flat) const {
  const bool is_low = at::isReducedFloatingType(flat.scalar_type());
  std::size_t width = c10::elementSize(flat.scalar_type());
  if (!hook_ && is_low) {
    const Wire wire = choose_wire({.low_type = true,
                                   .size = group_.size(),
                                   .elements = flat.numel(),
                                   .on_cpu = flat.is_cpu(),
                                   .always_float = always_float_});
    if (wire == Wire::kFloat) width = sizeof(float);
  } else if (!hook_ && compress_ && group_.size() > 1) {
    width = c10::elementSize(*compress_);
  }
  return flat.numel() * static_cast<std::int64_t>(width);
}

void BucketSender::announce(int bucket) const {
  if (hook_ && before_hook_) before_hook_(bucket);
}

void BucketSender::start(const FlatBuckets& buckets, int bucket, const at::Tensor& flat,
                         AverageScale scale) {
  Lane& lane = *lanes_[static_cast<std::size_t>(bucket) % lanes_.size()];
  bytes_sent_ += bytes_of(flat);
  if (hook_) {
    const std::int64_t elements = buckets.gradients(bucket).numel();
    const GradientBucket given{bucket, buckets.count(), flat.narrow(0, 0, elements)};
    sent_.push_back({bucket, nullptr, guarded(bucket, [&] { return hook_(given, group_); })});
  } else if (compress_) {
    sent_.push_back(
        {bucket, start_compressed_average(lane, flat, scale, *compress_, always_float_), nullptr});
  } else {
    sent_.push_back({bucket, start_average(lane, flat, scale, always_float_), nullptr});
  }
}

void BucketSender::wait_all() {
  std::vector<Sent> sent;
  sent.swap(sent_);
  for (Sent& one : sent) {
    if (one.average != nullptr) one.average->advance();
  }
  for (Sent& one : sent) {
    if (one.average != nullptr) one.average->wait();
    if (one.finish_hook) guarded(one.bucket, [&] { one.finish_hook(); });
  }
}

std::vector<double> BucketSender::sum(std::vector<double> notes) {
  const at::Tensor sum = at::empty({static_cast<std::int64_t>(notes.size())}, at::kDouble);
  std::copy(notes.begin(), notes.end(), sum.mutable_data_ptr<double>());
  lane().all_reduce(sum)->wait();
  std::copy_n(sum.const_data_ptr<double>(), notes.size(), notes.begin());
  return notes;
}

}  // namespace mezzo::parallel
