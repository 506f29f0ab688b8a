// A c10d backend as our communicator: for the files that make one.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "parallel/communicator.h"

namespace mezzo::parallel {

class EngineCommunicator : public Communicator {
 public:
  explicit EngineCommunicator(c10::intrusive_ptr<c10d::Backend> backend)
      : backend_(std::move(backend)) {}

  std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    c10d::AllreduceOptions options;
    options.reduceOp = op == ReduceOp::kMax   ? c10d::ReduceOp::MAX
                       : op == ReduceOp::kMin ? c10d::ReduceOp::MIN
                                              : c10d::ReduceOp::SUM;
    std::vector<at::Tensor> tensors{tensor};
    return pending(backend_->allreduce(tensors, options));
  }
  std::unique_ptr<Pending> all_gather(const at::Tensor& all, const at::Tensor& in) override {
    at::Tensor output = all;
    at::Tensor input = in;
    return pending(backend_->_allgather_base(output, input));
  }
  std::unique_ptr<Pending> broadcast(const at::Tensor& tensor, int root) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> tensors{tensor};
    return pending(backend_->broadcast(tensors, options));
  }
  std::unique_ptr<Pending> all_to_all(const at::Tensor& out, const Counts& received,
                                      const at::Tensor& in, const Counts& sent) override {
    at::Tensor output = out;
    at::Tensor input = in;
    Counts output_counts = received;
    Counts input_counts = sent;
    return pending(backend_->alltoall_base(output, input, output_counts, input_counts));
  }

 private:
  class WorkPending final : public Pending {
   public:
    explicit WorkPending(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
    void wait() override { work_->wait(); }

   private:
    c10::intrusive_ptr<c10d::Work> work_;
  };
  static std::unique_ptr<Pending> pending(c10::intrusive_ptr<c10d::Work> work) {
    return std::make_unique<WorkPending>(std::move(work));
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace mezzo::parallel
