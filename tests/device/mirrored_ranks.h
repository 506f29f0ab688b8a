// Two ranks in one process: the other one holds and says what this one does, or nothing. Messages
// between them on a device run on a stream of its own, as NCCL's collectives do, and nobody waits.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/group.h"
#include "pretend/device.h"

namespace mezzo::pretend {

enum class Other { kSame, kNothing };

class MirrorCommunicator final : public parallel::Communicator {
 public:
  MirrorCommunicator(Other other, std::optional<c10::Stream> stream)
      : other_(other), stream_(stream) {}

  std::unique_ptr<parallel::Pending> all_reduce(const at::Tensor& tensor,
                                                parallel::ReduceOp op) override {
    return run({tensor}, [=, this] {
      if (op == parallel::ReduceOp::kSum && other_ == Other::kSame) tensor.mul_(2);
    });
  }
  std::unique_ptr<parallel::Pending> all_gather(const at::Tensor& all,
                                                const at::Tensor& in) override {
    return run({all, in}, [=, this] {
      const at::Tensor rows = all.view({2, -1});
      rows[0].copy_(in.view({-1}));
      if (other_ == Other::kSame) rows[1].copy_(in.view({-1}));
      if (other_ == Other::kNothing) rows[1].zero_();
    });
  }
  std::unique_ptr<parallel::Pending> broadcast(const at::Tensor& tensor, int) override {
    return run({tensor}, [] {});
  }
  std::unique_ptr<parallel::Pending> all_to_all(const at::Tensor& out, const Counts&,
                                                const at::Tensor& in, const Counts&) override {
    return run({out, in}, [=] { out.copy_(in); });
  }

 private:
  // Keeps tensors until somebody waits, as LibTorch's groups do.
  class Running final : public parallel::Pending {
   public:
    Running(std::vector<at::Tensor> tensors, std::optional<c10::Event> done)
        : tensors_(std::move(tensors)), done_(std::move(done)) {}
    void wait() override {
      if (done_) done_->block(current());
      tensors_.clear();
    }

   private:
    std::vector<at::Tensor> tensors_;
    std::optional<c10::Event> done_;
  };

  static c10::Stream current() {
    return c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device());
  }

  std::unique_ptr<parallel::Pending> run(std::vector<at::Tensor> tensors,
                                         const std::function<void()>& operation) {
    for (const at::Tensor& tensor : tensors) {
      TORCH_CHECK(tensor.is_cuda() == stream_.has_value(), "this transport takes tensors of ",
                  stream_ ? "devices" : "the processor", ", not ", tensor.device());
    }
    if (!stream_) {
      operation();
      return std::make_unique<Running>(std::move(tensors), std::nullopt);
    }
    c10::Event before(at::kCUDA);
    before.record(current());
    before.block(*stream_);
    std::optional<c10::Event> done(at::kCUDA);
    {
      const c10::StreamGuard guard(*stream_);
      operation();
      done->record(*stream_);
    }
    return std::make_unique<Running>(std::move(tensors), std::move(done));
  }

  const Other other_;
  const std::optional<c10::Stream> stream_;
};

class MirrorEngine final : public parallel::Engine {
 public:
  MirrorEngine(Other other, bool of_device) : other_(other), of_device_(of_device) {}
  std::shared_ptr<parallel::Communicator> connect(const std::string&, int, int) override {
    return std::make_shared<MirrorCommunicator>(
        other_, of_device_ ? std::optional(new_stream()) : std::nullopt);
  }

 private:
  const Other other_;
  const bool of_device_;
};

// Notes of failures, which nobody else reads.
class OwnNotes final : public parallel::Store {
 public:
  void set(const std::string& key, const std::string& value) override { notes_[key] = value; }
  std::string get(const std::string& key) override { return has(key) ? notes_.at(key) : ""; }
  bool has(const std::string& key) override { return notes_.contains(key); }
  std::int64_t add(const std::string&, std::int64_t amount) override { return count_ += amount; }

 private:
  std::map<std::string, std::string> notes_;
  std::int64_t count_ = 0;
};

/// The group of the two, of which this process is the first.
inline parallel::ProcessGroup two_ranks(Other other = Other::kSame, bool compare_calls = false) {
  parallel::Session::Options options;
  options.size = 2;
  options.compare_calls = compare_calls;
  options.store = std::make_shared<OwnNotes>();
  options.cpu = std::make_shared<MirrorEngine>(other, false);
  options.cuda = std::make_shared<MirrorEngine>(other, true);
  return parallel::ProcessGroup(parallel::detail::Group::connect(
      0, std::make_shared<parallel::Session>(std::move(options)), {0, 1}));
}

/// Expects that since `watch` began the host has waited for nothing.
inline void expect_no_wait(const Watch& watch, const std::string& what) {
  const Counts counts = watch.counts();
  std::string stacks;
  for (const std::string& stack : watch.stacks()) stacks += stack + "\n\n";
  EXPECT_EQ(counts.waits, 0) << what << ":\n" << stacks;
  EXPECT_EQ(counts.event_waits, 0) << what << ":\n" << stacks;
}

}  // namespace mezzo::pretend
