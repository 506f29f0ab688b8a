// One order of collectives. Two parts of a program whose calls may interleave differently on
// different ranks (a reducer's buckets, batch norms, flags) need a lane each: Gloo answers a
// mismatch with an abort or with garbage, so a lane also refuses what would become one.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "parallel/communicator.h"

namespace mezzo::parallel {

class Session;

class Lane : public std::enable_shared_from_this<Lane> {
 public:
  /// `cuda` may be null: then CUDA tensors travel through CPU copies.
  Lane(std::string name, std::shared_ptr<Session> session, int rank, int size,
       std::shared_ptr<Communicator> cpu, std::shared_ptr<Communicator> cuda);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  const std::string& name() const noexcept { return name_; }

  /// As Communicator, but: tensors must be contiguous and defined, the wait moves the version of
  /// what was written, a failure ends the session and is an Error that names the missing ranks.
  std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  std::unique_ptr<Pending> all_gather(const at::Tensor& all, const at::Tensor& in);
  std::unique_ptr<Pending> broadcast(const at::Tensor& tensor, int root);
  /// `elements`: a number that all ranks give alike, for those who compare calls.
  std::unique_ptr<Pending> all_to_all(const at::Tensor& out, Communicator::Counts received,
                                      const at::Tensor& in, Communicator::Counts sent,
                                      std::int64_t elements);

  ProcessGroup::Counts counts() const;
  /// The transport goes: peers that wait for this rank see it at once. Later calls raise Errors.
  void drop();

 private:
  // The part of a call that all ranks must do alike.
  struct Call {
    const char* what;
    std::int64_t elements;
    int argument = 0;
  };
  using Start = std::function<std::unique_ptr<Pending>(Communicator&, const at::Tensor& written,
                                                       const at::Tensor& read)>;
  // `read` is undefined if `written` is read too.
  std::unique_ptr<Pending> start(const Call& call, const Start& begin, const at::Tensor& written,
                                 const at::Tensor& read = {});
  struct Way {
    std::shared_ptr<Communicator> transport;
    bool staged;  // through copies on the host
  };
  Way way_of(const at::Device& device, const char* what);
  void compare_calls(const Call& call, at::ScalarType type);

  const std::string name_;
  const std::shared_ptr<Session> session_;
  const int rank_;
  const int size_;
  std::mutex mutex_;  // of the two pointers
  std::shared_ptr<Communicator> cpu_;
  std::shared_ptr<Communicator> cuda_;
  std::atomic<std::int64_t> collectives_{0};
  std::atomic<std::int64_t> bytes_{0};
};

}  // namespace mezzo::parallel
