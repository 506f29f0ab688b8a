// Follows epsilons through the operator calls of a program.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/torch.h"
#include "insight/epsilons.h"

namespace mezzo::insight {

class EpsilonTrail {
 public:
  /// An operator is called, outside of others.
  void begins(std::string_view name, at::ArrayRef<const c10::IValue> inputs);
  /// It is over.
  void ended(const std::vector<c10::IValue>& results);

  const std::set<EpsilonUse>& uses() const noexcept { return uses_; }

 private:
  /// A number that some memory is at least.
  struct Bound {
    c10::weak_intrusive_ptr<c10::StorageImpl> keeps;  // so that its address is not used again
    std::string giver;
    double eps = 0;
  };
  /// A number with which some memory was filled.
  struct Filled {
    c10::weak_intrusive_ptr<c10::StorageImpl> keeps;
    double number = 0;
  };
  const Bound* bound_of(const c10::IValue& value) const;
  /// The number that an argument is or was filled with.
  std::optional<double> known_number(const c10::IValue& value) const;

  std::set<EpsilonUse> uses_;
  std::unordered_map<const c10::StorageImpl*, Bound> bounds_;
  std::unordered_map<const c10::StorageImpl*, Filled> filled_;
  std::optional<double> filling_;  // of what the open call results in
  std::string giver_;              // of what the open call results in; empty: nothing small
  double eps_ = 0;
  bool gives_view_ = false;  // may the open call hand on the memory of an argument?
};

}  // namespace mezzo::insight
