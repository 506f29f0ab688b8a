// Low-precision copies of weights, lent to an update that writes them in its own pass, so that no
// weight is cast after it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "core/torch.h"

namespace mezzo::casting {

class Shadow;

/// A copy that the borrower overwrites with the weight's new values.
struct CastLoan {
  std::shared_ptr<Shadow> shadow;
  at::Tensor weight;
  const c10::StorageImpl* storage = nullptr;  // the weight's when the copy was lent
  at::Tensor copy;
  std::optional<at::ScalarType> rounded_to;  // float memory that holds numbers of this type
};

/// The loans of one update. Between lend() and take_back() a copy counts as stale, so that
/// nobody takes it half written; one that is not taken back is cast again at its next use. Lending
/// and taking back are thread-safe, an object of this class belongs to one thread.
class CastLoans {
 public:
  /// Forgets what was lent before; addresses of the next `count` loans stay good until the next
  /// begin().
  void begin(std::size_t count);

  /// Lends the copy of this weight that was used since its last update. Null if there is none,
  /// if several were used, or if the copy is not the weight's new value rounded once:
  /// refresh_casts() is for those.
  const CastLoan* lend(const at::Tensor& weight);

  /// Weights and copies are written and their versions moved: the copies count as fresh, but for
  /// those that were used, invalidated or replaced meanwhile.
  void take_back();

 private:
  std::vector<CastLoan> loans_;
};

}  // namespace mezzo::casting
