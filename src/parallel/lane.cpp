#include "parallel/lane.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <functional>
#include <numeric>
#include <utility>

#include "bridge/tensors.h"
#include "core/scalar_type.h"
#include "parallel/session.h"
#include "parallel/streams.h"

namespace mezzo::parallel {
namespace {

// Waits; turns a failure into the session's end.
class LanePending final : public Pending {
 public:
  LanePending(std::shared_ptr<Session> session, std::string call, std::unique_ptr<Pending> inner,
              at::Tensor written, at::Tensor read, std::function<void()> after)
      : session_(std::move(session)),
        call_(std::move(call)),
        inner_(std::move(inner)),
        written_(std::move(written)),
        read_(std::move(read)),
        after_(std::move(after)) {}

  void wait() override {
    if (inner_ == nullptr) return;
    try {
      inner_->wait();
    } catch (const std::exception& failure) {
      inner_.reset();
      bridge::bump_version(written_);  // it may hold a part of the result
      session_->fail(call_, text_of(failure));
    }
    inner_.reset();
    // The transport writes memory from a thread of its own. Autograd, the low-precision copies of
    // weights and those who keep masters learn from the version alone that there is something new.
    bridge::bump_version(written_);
    if (after_) after_();
    keep_for_current_stream(written_);
    keep_for_current_stream(read_);
    read_.reset();
  }

 private:
  const std::shared_ptr<Session> session_;
  const std::string call_;
  std::unique_ptr<Pending> inner_;
  const at::Tensor written_;
  at::Tensor read_;  // lives until the transport has read it
  std::function<void()> after_;
};

// Gloo moves bytes of these as they are, but cannot add them.
bool addable(at::ScalarType type) {
  if (is_network_type(type)) return true;
  switch (type) {
    case at::kInt:
    case at::kLong:
    case at::kChar:
    case at::kByte:
      return true;
    default:
      return false;
  }
}

// So that every type can travel.
at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.view(-1).view(at::kByte);
}

}  // namespace

Lane::Lane(std::string name, std::shared_ptr<Session> session, int rank, int size,
           std::shared_ptr<Communicator> cpu, std::shared_ptr<Communicator> cuda)
    : name_(std::move(name)),
      session_(std::move(session)),
      rank_(rank),
      size_(size),
      cpu_(std::move(cpu)),
      cuda_(std::move(cuda)) {}

Lane::Way Lane::way_of(const at::Device& device, const char* what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool by_host = cuda_ == nullptr || !device.is_cuda();
  Way way{by_host ? cpu_ : cuda_, by_host && device.is_cuda()};
  if (way.transport == nullptr) raise(what, "this process group was destroyed");
  return way;
}

std::unique_ptr<Pending> Lane::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  if (!addable(tensor.scalar_type())) {
    raise<UnsupportedError>("all_reduce", "cannot add tensors of type ",
                            c10::toString(tensor.scalar_type()), " between ranks");
  }
  return start(
      {"all_reduce", tensor.numel(), static_cast<int>(op)},
      [op](Communicator& c, const at::Tensor& t, const at::Tensor&) { return c.all_reduce(t, op); },
      tensor);
}

std::unique_ptr<Pending> Lane::all_gather(const at::Tensor& all, const at::Tensor& in) {
  TORCH_INTERNAL_ASSERT(all.numel() == in.numel() * size_ && all.dtype() == in.dtype());
  return start(
      {"all_gather", in.numel()},
      [](Communicator& c, const at::Tensor& a, const at::Tensor& i) {
        return c.all_gather(as_bytes(a), as_bytes(i));
      },
      all, in);
}

std::unique_ptr<Pending> Lane::broadcast(const at::Tensor& tensor, int root) {
  return start(
      {"broadcast", tensor.numel(), root},
      [root](Communicator& c, const at::Tensor& t, const at::Tensor&) {
        return c.broadcast(as_bytes(t), root);
      },
      tensor);
}

std::unique_ptr<Pending> Lane::all_to_all(const at::Tensor& out, Communicator::Counts received,
                                          const at::Tensor& in, Communicator::Counts sent,
                                          std::int64_t elements) {
  const auto total = [](const Communicator::Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  TORCH_INTERNAL_ASSERT(out.numel() == total(received) && in.numel() == total(sent));
  TORCH_INTERNAL_ASSERT(out.dtype() == in.dtype());
  const auto width = static_cast<std::int64_t>(in.element_size());
  for (std::int64_t& count : received) count *= width;
  for (std::int64_t& count : sent) count *= width;
  return start(
      {"all_to_all", elements},
      [&](Communicator& c, const at::Tensor& o, const at::Tensor& i) {
        return c.all_to_all(as_bytes(o), received, as_bytes(i), sent);
      },
      out, in);
}

std::unique_ptr<Pending> Lane::start(const Call& call, const Start& begin,
                                     const at::Tensor& written, const at::Tensor& read) {
  TORCH_INTERNAL_ASSERT(written.defined() && written.is_contiguous());
  TORCH_INTERNAL_ASSERT(!read.defined() || read.is_contiguous());
  const at::Tensor& given = read.defined() ? read : written;
  const std::int64_t number = ++collectives_;
  bytes_ += static_cast<std::int64_t>(given.nbytes());
  const std::string name =
      std::string(call.what) + " " + std::to_string(number) + " of '" + name_ + "'";
  session_->check_alive();
  const Way way = way_of(written.device(), call.what);
  at::Tensor out = written;
  at::Tensor in = read;
  std::function<void()> after;
  if (way.staged) {
    out = read.defined() ? at::empty(written.sizes(), written.options().device(at::kCPU))
                         : written.to(at::kCPU);
    if (read.defined()) in = read.to(at::kCPU);
    // Memory that is not pinned was read when this returns: nothing waits for the device.
    after = [written, out] { written.copy_(out, /*non_blocking=*/true); };
  }
  try {
    if (session_->compares_calls() && size_ > 1) {
      compare_calls(call, given.scalar_type());
    }
    return std::make_unique<LanePending>(session_, name, begin(*way.transport, out, in), written,
                                         in, after);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {
    session_->fail(name, text_of(failure));
  }
}

// By the transport of CPU tensors, wherever those of the call lie: what is compared is the host's.
void Lane::compare_calls(const Call& call, at::ScalarType type) {
  const Way way = way_of(at::kCPU, call.what);
  constexpr std::int64_t kFields = 5;
  const std::vector<std::int64_t> mine{
      static_cast<std::int64_t>(std::hash<std::string>{}(call.what)), call.elements,
      static_cast<std::int64_t>(type), call.argument, collectives_.load()};
  const at::Tensor in = at::tensor(at::IntArrayRef(mine), at::kLong);
  const at::Tensor all = at::empty({size_ * kFields}, at::kLong);
  way.transport->all_gather(all.view(at::kByte), in.view(at::kByte))->wait();
  const std::int64_t* theirs = all.const_data_ptr<std::int64_t>();
  for (int other = 0; other < size_; ++other) {
    const std::int64_t* fields = theirs + other * kFields;
    if (std::equal(mine.begin(), mine.end(), fields)) continue;
    raise("check_collectives", "ranks differ in call ", mine[4], " of '", name_, "': rank ", rank_,
          " calls ", call.what, " with ", mine[1], " elements of ", c10::toString(type), "; rank ",
          other, " calls ", fields[0] == mine[0] ? "the same" : "another operation", " with ",
          fields[1], " elements of ", c10::toString(static_cast<at::ScalarType>(fields[2])),
          ", its call ", fields[4]);
  }
}

ProcessGroup::Counts Lane::counts() const {
  return {collectives_.load(), bytes_.load()};
}

void Lane::drop() {
  std::shared_ptr<Communicator> cpu;
  std::shared_ptr<Communicator> cuda;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    cpu.swap(cpu_);
    cuda.swap(cuda_);
  }
}

}  // namespace mezzo::parallel
