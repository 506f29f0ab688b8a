#include "casting/cast_loans.h"

#include <utility>

#include "casting/weight_shadows.h"

namespace mezzo::casting {

void CastLoans::begin(std::size_t count) {
  loans_.clear();
  loans_.reserve(count);
}

const CastLoan* CastLoans::lend(const at::Tensor& weight) {
  std::optional<CastLoan> loan = WeightShadows::global().lend(weight);
  return loan ? &loans_.emplace_back(*std::move(loan)) : nullptr;
}

void CastLoans::take_back() {
  WeightShadows::global().take_back(loans_);
  loans_.clear();
}

}  // namespace mezzo::casting
