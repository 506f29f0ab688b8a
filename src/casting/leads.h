// Which tensors of a call the others follow in a network that is low itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "casting/decision.h"
#include "core/torch.h"

namespace mezzo::casting {

/// Finds the weight among the operands: what the schema calls so, else a parameter or a view of
/// one, the one of most dimensions (a bias has fewer).
class LeadFinder {
 public:
  void look(const at::Tensor& tensor, bool is_named_weight);
  const Leads& leads() const { return leads_; }

 private:
  Leads leads_;
  bool named_ = false;
  std::int64_t dims_ = -1;
};

}  // namespace mezzo::casting
