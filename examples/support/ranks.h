// A training program that can run in several processes, each with its share of every batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace examples {

/// Runs `work` here where `processes` is 1, or where this process is a rank already. Else starts
/// this program again so many times under `mezzo launch`, with the same arguments. Returns the exit
/// code.
int run_in_ranks(int processes, int argc, const char* const* argv,
                 const std::function<void()>& work);

/// This process among its peers: joins them where a starter gave it a rank, and is alone elsewhere.
class Ranks {
 public:
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int size() const { return size_; }
  /// This rank's part of a batch. Throws mezzo::ConfigError where ranks would get different
  /// numbers, since their averages would then weigh differently.
  at::Tensor share(const at::Tensor& batch) const;
  /// Throws mezzo::Error unless these tensors hold the same bits on all ranks, and says on standard
  /// error that they do. Alone: nothing.
  void expect_equal(const std::vector<at::Tensor>& tensors) const;

 private:
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace examples
