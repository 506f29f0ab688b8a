#include "distributed/bucket_sender.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

namespace mezzo::parallel {

void BucketSender::start(const FlatBuckets& buckets, int bucket, const at::Tensor& flat,
                         AverageScale scale) {
  Lane& lane = *lanes_[static_cast<std::size_t>(bucket) % lanes_.size()];
  bytes_sent_ += static_cast<std::int64_t>(flat.nbytes());
  if (hook_) {
    const std::int64_t elements = buckets.gradients(bucket).numel();
    if (before_hook_) before_hook_(bucket);
    const GradientBucket given{bucket, buckets.count(), flat.narrow(0, 0, elements)};
    sent_.push_back({nullptr, hook_(given, group_)});
  } else if (compress_) {
    sent_.push_back({start_compressed_average(lane, flat, scale, *compress_), nullptr});
  } else {
    sent_.push_back({start_average(lane, flat, scale, always_float_), nullptr});
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
    if (one.finish_hook) one.finish_hook();
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
