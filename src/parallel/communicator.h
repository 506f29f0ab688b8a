// The operations of a transport. Calls start an operation and return at once; the tensors must stay
// untouched until the wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/torch.h"
#include "mezzo/process_group.h"

namespace mezzo::parallel {

class Store;

/// An operation on its way.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Waits until the result is there. Throws what went wrong.
  virtual void wait() = 0;
  /// Starts the last of several operations that run in turn, after a wait for those before. All
  /// ranks come here in the same order. wait() does it if nobody did.
  virtual void advance() {}
};

/// Same-shaped contiguous tensors on all ranks; it checks nothing.
class Communicator {
 public:
  using Counts = std::vector<std::int64_t>;  // an element each rank

  virtual ~Communicator() = default;
  /// In place. Not kAverage.
  virtual std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor, ReduceOp op) = 0;
  /// `all` has size x in.numel() elements.
  virtual std::unique_ptr<Pending> all_gather(const at::Tensor& all, const at::Tensor& in) = 0;
  virtual std::unique_ptr<Pending> broadcast(const at::Tensor& tensor, int root) = 0;
  /// The first sent[0] elements of `in` go to rank 0, the next sent[1] to rank 1, and so on; `out`
  /// gets received[0] elements from rank 0, behind them received[1] from rank 1. Both of one
  /// dimension, each the sum of its counts; what a rank sends itself is copied.
  virtual std::unique_ptr<Pending> all_to_all(const at::Tensor& out, const Counts& received,
                                              const at::Tensor& in, const Counts& sent) = 0;
};

/// A group of one: nothing to do.
std::shared_ptr<Communicator> solo_communicator();

/// Makes communicators of one transport.
class Engine {
 public:
  virtual ~Engine() = default;
  /// Connects `size` ranks that all come here with the same name. Throws.
  virtual std::shared_ptr<Communicator> connect(const std::string& name, int rank, int size) = 0;
};

struct EngineOptions {
  std::shared_ptr<Store> store;
  std::chrono::milliseconds timeout;
  std::string interface;  // network interface, or
  std::string address;    // own address to bind to; both empty: the system's choice
};

/// Gloo, for CPU tensors. In a build without the distributed part: UnsupportedError.
std::shared_ptr<Engine> gloo_engine(const EngineOptions& options);

/// The message of an exception, without LibTorch's backtrace.
std::string text_of(const std::exception& failure);

}  // namespace mezzo::parallel
