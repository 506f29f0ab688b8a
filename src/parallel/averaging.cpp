#include "parallel/averaging.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/float_sum.h"
#include "parallel/scratch.h"
#include "parallel/streams.h"

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

// Two ranks: each sends everything to the peer.
Communicator::Counts swapped(int rank, std::int64_t count) {
  return rank == 0 ? Communicator::Counts{0, count} : Communicator::Counts{count, 0};
}

// As GatherAverage, between two: nothing is copied, and no memory is needed but the other's.
class SwapAverage final : public Pending {
 public:
  SwapAverage(Lane& lane, const at::Tensor& flat, AverageScale scale)
      : rank_(lane.rank()),
        factor_(scale.before * scale.after),
        theirs_({flat.numel()}, flat.options()) {
    const std::int64_t each = gather_part(flat.numel(), true);
    for (std::int64_t begin = 0; begin < flat.numel(); begin += each) {
      const std::int64_t count = std::min(each, flat.numel() - begin);
      const at::Tensor own = flat.narrow(0, begin, count);
      const at::Tensor theirs = theirs_.tensor().narrow(0, begin, count);
      const Communicator::Counts counts = swapped(rank_, count);
      parts_.push_back({own, theirs, lane.all_to_all(theirs, counts, own, counts, count)});
    }
  }
  void wait() override {
    for (Part& part : parts_) {
      part.swap->wait();
      // In the order of the ranks: of two NaNs the first one's bits survive.
      const std::array<at::Tensor, 2> rows{rank_ == 0 ? part.own : part.theirs,
                                           rank_ == 0 ? part.theirs : part.own};
      sum_in_float(rows, part.own, factor_);
    }
    parts_.clear();
    theirs_.give_back();
  }

 private:
  struct Part {
    at::Tensor own;
    at::Tensor theirs;
    std::unique_ptr<Pending> swap;
  };
  int rank_;
  double factor_;
  Scratch theirs_;
  std::vector<Part> parts_;
};

// A reduce-scatter of our own and a gather, both as exchanges of all with all.
class ShardAverage final : public Pending {
 public:
  ShardAverage(Lane& lane, const at::Tensor& flat, AverageScale scale)
      : lane_(lane.shared_from_this()), factor_(scale.before * scale.after) {
    const std::int64_t each = gather_part(flat.numel(), true);
    for (std::int64_t begin = 0; begin < flat.numel(); begin += each) {
      Part& part = parts_.emplace_back();
      part.values = flat.narrow(0, begin, std::min(each, flat.numel() - begin));
      part.shards = shards_of(part.values.numel(), lane.size());
      const std::int64_t own = part.shards[static_cast<std::size_t>(lane.rank())];
      part.rows = std::make_unique<Scratch>(at::IntArrayRef{lane.size(), own}, flat.options());
      part.exchange = lane.all_to_all(flat_rows(part), alike(own), part.values, part.shards,
                                      part.values.numel());
    }
  }
  void advance() override {
    if (advanced_) return;
    advanced_ = true;
    for (Part& part : parts_) {
      part.exchange->wait();
      const at::Tensor& rows = part.rows->tensor();
      sum_in_float(rows, rows[0], factor_);
      for (std::int64_t row = 1; row < rows.size(0); ++row) rows[row].copy_(rows[0]);
      part.exchange = lane_->all_to_all(part.values, part.shards, flat_rows(part),
                                        alike(rows.size(1)), part.values.numel());
    }
  }
  void wait() override {
    advance();
    for (const Part& part : parts_) part.exchange->wait();
    parts_.clear();
  }

 private:
  struct Part {
    at::Tensor values;
    Communicator::Counts shards;
    std::unique_ptr<Scratch> rows;  // [ranks, own shard]: what each gave, then what each gets
    std::unique_ptr<Pending> exchange;
  };
  static at::Tensor flat_rows(const Part& part) { return part.rows->tensor().view(-1); }
  Communicator::Counts alike(std::int64_t count) const {
    return Communicator::Counts(static_cast<std::size_t>(lane_->size()), count);
  }

  const std::shared_ptr<Lane> lane_;
  double factor_;
  bool advanced_ = false;
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
      : flat_(std::move(flat)) {
    const double factor = scale.before * scale.after;
    const Wire wire = choose_wire({.low_type = true,
                                   .size = lane.size(),
                                   .elements = flat_.numel(),
                                   .on_cpu = flat_.is_cpu()});
    if (wire == Wire::kFloat) {
      // Divided before, so that the transport's sums in the low type stay in its range; by a power
      // of two, so that what was exact stays so: ones are counted in it.
      const double before = std::exp2(-std::ceil(std::log2(lane.size())));
      rest_ = factor / before;
      low_ = lowered(before, type);
      travel_ = lane.all_reduce(low_);
    } else if (wire == Wire::kShards) {
      low_ = flat_.to(type);
      travel_ = start_average_by(wire, lane, low_, scale);
    } else if (wire == Wire::kSwap) {
      sums_ = factor;
      low_ = at::empty({2, flat_.numel()}, flat_.options().dtype(type));
      const at::Tensor own = low_[lane.rank()];
      own.copy_(flat_);
      const Communicator::Counts counts = swapped(lane.rank(), flat_.numel());
      travel_ = lane.all_to_all(low_[1 - lane.rank()], counts, own, counts, flat_.numel());
    } else {
      sums_ = factor;
      low_ = at::empty({lane.size(), flat_.numel()}, flat_.options().dtype(type));
      travel_ = lane.all_gather(low_, flat_.to(type));
    }
  }
  void advance() override { travel_->advance(); }
  void wait() override {
    travel_->wait();
    if (sums_) {
      sum_in_float(low_, flat_, *sums_);
    } else if (!flat_.is_cpu()) {
      sum_in_float(low_.view({1, -1}), flat_, rest_);
    } else {
      flat_.copy_(low_);
      if (rest_ != 1.0) flat_.mul_(rest_);
    }
    keep_for_current_stream(low_);  // a hook made it, perhaps on another one
    low_.reset();
  }

 private:
  at::Tensor lowered(double factor, at::ScalarType type) const {
    if (flat_.is_cpu()) return at::mul(flat_, factor).to(type);
    at::Tensor low = at::empty(flat_.sizes(), flat_.options().dtype(type));
    sum_in_float(flat_.view({1, -1}), low, factor);
    return low;
  }

  at::Tensor flat_;
  at::Tensor low_;              // the average, or
  std::optional<double> sums_;  // what all gave, to be summed here with this factor
  double rest_ = 1.0;           // what the average is still to be multiplied by
  std::unique_ptr<Pending> travel_;
};

}  // namespace

std::unique_ptr<Pending> start_compressed_average(Lane& lane, const at::Tensor& flat,
                                                  AverageScale scale, at::ScalarType type,
                                                  bool always_float) {
  if (at::elementSize(flat.scalar_type()) <= at::elementSize(type)) {
    return start_average(lane, flat, scale, always_float);
  }
  if (lane.size() == 1) return std::make_unique<DirectAverage>(lane, flat, scale);
  return std::make_unique<CompressedAverage>(lane, flat, scale, type);
}

std::unique_ptr<Pending> start_average_by(Wire wire, Lane& lane, const at::Tensor& flat,
                                          AverageScale scale) {
  switch (wire) {
    case Wire::kSwap:
      TORCH_INTERNAL_ASSERT(lane.size() == 2);
      return std::make_unique<SwapAverage>(lane, flat, scale);
    case Wire::kGather:
      return std::make_unique<GatherAverage>(lane, flat, scale);
    case Wire::kShards:
      return std::make_unique<ShardAverage>(lane, flat, scale);
    case Wire::kFloat:
      return std::make_unique<FloatAverage>(lane, flat, scale);
    case Wire::kDirect:
      break;
  }
  return std::make_unique<DirectAverage>(lane, flat, scale);
}

std::unique_ptr<Pending> start_average(Lane& lane, const at::Tensor& flat, AverageScale scale,
                                       bool always_float) {
  const Wire wire = choose_wire({.low_type = at::isReducedFloatingType(flat.scalar_type()),
                                 .size = lane.size(),
                                 .elements = flat.numel(),
                                 .on_cpu = flat.is_cpu(),
                                 .always_float = always_float});
  return start_average_by(wire, lane, flat, scale);
}

std::vector<std::int64_t> shards_of(std::int64_t elements, int size) {
  std::vector<std::int64_t> shards(static_cast<std::size_t>(size), elements / size);
  for (std::int64_t i = 0; i < elements % size; ++i) ++shards[static_cast<std::size_t>(i)];
  return shards;
}

}  // namespace mezzo::parallel
