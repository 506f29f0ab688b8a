// The processes that share one overflow flag.
#pragma once

#include <optional>
#include <utility>

#include "mezzo/export.h"
#include "mezzo/process_group.h"

namespace mezzo::amp {

/// The ranks that skip a step together, because one of them found a gradient that is not finite.
/// Implicit from a process group.
class MEZZO_API OverflowGroup {
 public:
  OverflowGroup(parallel::ProcessGroup group) : group_(std::move(group)) {}

  /// This process decides alone.
  static OverflowGroup none() { return OverflowGroup(); }

  /// Nothing: this process decides alone.
  const std::optional<parallel::ProcessGroup>& group() const noexcept { return group_; }

 private:
  OverflowGroup() = default;
  std::optional<parallel::ProcessGroup> group_;
};

}  // namespace mezzo::amp
