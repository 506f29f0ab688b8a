// Whose processes share one overflow flag.
#pragma once

#include "mezzo/export.h"

namespace mezzo::amp {

/// The ranks that skip a step together, because one of them found a gradient that is not finite.
class MEZZO_API OverflowGroup {
 public:
  /// This process decides alone.
  static OverflowGroup none() { return OverflowGroup(); }

  bool is_none() const noexcept { return true; }

 private:
  OverflowGroup() = default;
};

}  // namespace mezzo::amp
