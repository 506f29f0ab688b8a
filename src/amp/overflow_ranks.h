// The origin of a gradient that is not finite, in a program of several processes: known where a
// flag is agreed on, for the message of a step that is skipped for it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/torch.h"
#include "mezzo/process_group.h"

namespace mezzo::amp::detail {

class OverflowRanks {
 public:
  /// One process, or a flag that it did not share, or gradients at which nobody looked.
  OverflowRanks() = default;
  /// Gradients that were averaged: the ranks (of the whole) whose own were not finite before; none
  /// if the average alone may be.
  explicit OverflowRanks(std::vector<int> before_the_average);
  /// A flag that was agreed on, of each rank's own gradients: `origin` as of parallel/agreement.h.
  /// `name_of` returns the name of a parameter by its place in the list of gradients.
  OverflowRanks(const at::Tensor& origin, const parallel::ProcessGroup& group,
                const std::function<std::string(std::size_t)>& name_of)
      : OverflowRanks(origin, /*averaged=*/false, group, name_of) {}

  /// Averaged gradients: `before_the_average` as above, where that is known, and whose they became
  /// after it.
  static OverflowRanks of_averages(std::optional<std::vector<int>> before_the_average,
                                   const at::Tensor& origin, const parallel::ProcessGroup& group,
                                   const std::function<std::string(std::size_t)>& name_of);

  /// Several losses: the first that overflowed is reported.
  void add(const OverflowRanks& later);

  /// To follow "a gradient that is not finite": " on rank 1", " on ranks 0, 2", that the average
  /// alone is not, or that one rank alone has it after the average; empty if nothing is known.
  /// Reads the device.
  std::string describe() const;
  /// The parameter on the first of these ranks; empty if it is not known.
  const std::string& parameter() const noexcept { return parameter_; }

 private:
  bool known() const { return ranks_ || !text_.empty() || origin_.defined(); }

  OverflowRanks(const at::Tensor& origin, bool averaged, const parallel::ProcessGroup& group,
                const std::function<std::string(std::size_t)>& name_of);
  std::string describe_origin(const at::Tensor& origin, int rank) const;

  std::optional<std::vector<int>> ranks_;
  std::string parameter_;
  std::string text_;       // on a host
  at::Tensor origin_;      // on a device: read when a step is skipped
  bool averaged_ = false;  // before the flag was raised
  std::optional<parallel::ProcessGroup> group_;
};

}  // namespace mezzo::amp::detail
