#include "distributed/averaging.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "distributed/float_sum.h"
#include "distributed/scratch.h"

namespace mezzo::parallel {
namespace {

class DirectAverage final : public Pending {
 public:
  DirectAverage(Lane& lane, at::Tensor flat, AverageScale scale)
      : flat_(std::move(flat)), after_(scale.after) {
    if (scale.before != 1.0) flat_.mul_(scale.before);
    sum_ = lane.all_reduce(flat_);
  }
  void wait() override {
    sum_->wait();
    if (after_ != 1.0) flat_.mul_(after_);
  }

 private:
  at::Tensor flat_;
  double after_;
  std::unique_ptr<Pending> sum_;
};

// In parts, so that one is summed while the next ones travel, and is still in the cache.
class GatherAverage final : public Pending {
 public:
  GatherAverage(Lane& lane, at::Tensor flat, AverageScale scale)
      : flat_(std::move(flat)),
        factor_(scale.before * scale.after),
        all_({lane.size() * flat_.numel()}, flat_.options()) {
    const std::int64_t size = lane.size();
    const std::int64_t each = gather_part(flat_.numel(), flat_.is_cpu());
    for (std::int64_t begin = 0; begin < flat_.numel(); begin += each) {
      const std::int64_t count = std::min(each, flat_.numel() - begin);
      const at::Tensor own = flat_.narrow(0, begin, count);
      const at::Tensor all =
          all_.tensor().narrow(0, begin * size, count * size).view({size, count});
      parts_.push_back({own, all, lane.all_gather(all, own)});
    }
  }
  void wait() override {
    for (Part& part : parts_) {
      part.gather->wait();
      sum_in_float(part.all, part.own, factor_);
    }
    parts_.clear();
    all_.give_back();
  }

 private:
  struct Part {
    at::Tensor own;
    at::Tensor all;  // [ranks, elements]
    std::unique_ptr<Pending> gather;
  };
  at::Tensor flat_;
  double factor_;
  Scratch all_;
  std::vector<Part> parts_;
};

class FloatAverage final : public Pending {
 public:
  FloatAverage(Lane& lane, at::Tensor flat, AverageScale scale)
      : flat_(std::move(flat)),
        after_(scale.after),
        wide_({1, flat_.numel()}, flat_.options().dtype(at::kFloat)) {
    sum_in_float(flat_.view({1, flat_.numel()}), wide_.tensor().view(-1), scale.before);
    sum_ = lane.all_reduce(wide_.tensor());
  }
  void wait() override {
    sum_->wait();
    sum_in_float(wide_.tensor(), flat_, after_);
    wide_.give_back();
  }

 private:
  at::Tensor flat_;
  double after_;
  Scratch wide_;
  std::unique_ptr<Pending> sum_;
};

// The float tensor's values, rounded for the way.
class CompressedAverage final : public Pending {
 public:
  CompressedAverage(Lane& lane, at::Tensor flat, AverageScale scale, at::ScalarType type)
      : flat_(std::move(flat)),
        gathers_(choose_wire(true, lane.size(), false, flat_.numel()) == Wire::kGather) {
    if (gathers_) {
      factor_ = scale.before * scale.after;
      low_ = at::empty({lane.size(), flat_.numel()}, flat_.options().dtype(type));
      travel_ = lane.all_gather(low_, flat_.to(type));
    } else {
      // Divided before, so that the transport's sums in the low type stay in its range.
      factor_ = 1.0;
      low_ = at::mul(flat_, scale.before * scale.after).to(type);
      travel_ = lane.all_reduce(low_);
    }
  }
  void wait() override {
    travel_->wait();
    if (gathers_) {
      sum_in_float(low_, flat_, factor_);
    } else {
      flat_.copy_(low_);
    }
    low_.reset();
  }

 private:
  at::Tensor flat_;
  bool gathers_;
  double factor_ = 1.0;
  at::Tensor low_;
  std::unique_ptr<Pending> travel_;
};

}  // namespace

std::unique_ptr<Pending> start_compressed_average(Lane& lane, const at::Tensor& flat,
                                                  AverageScale scale, at::ScalarType type) {
  if (at::elementSize(flat.scalar_type()) <= at::elementSize(type)) {
    return start_average(lane, flat, scale);
  }
  if (lane.size() == 1) return std::make_unique<DirectAverage>(lane, flat, scale);
  return std::make_unique<CompressedAverage>(lane, flat, scale, type);
}

std::unique_ptr<Pending> start_average(Lane& lane, const at::Tensor& flat, AverageScale scale,
                                       bool always_float) {
  const bool low = at::isReducedFloatingType(flat.scalar_type());
  switch (choose_wire(low, lane.size(), always_float, flat.numel())) {
    case Wire::kGather:
      return std::make_unique<GatherAverage>(lane, flat, scale);
    case Wire::kFloat:
      return std::make_unique<FloatAverage>(lane, flat, scale);
    case Wire::kDirect:
      break;
  }
  return std::make_unique<DirectAverage>(lane, flat, scale);
}

}  // namespace mezzo::parallel
