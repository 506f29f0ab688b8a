// Two generations of one interface that must not be mixed: initialize, and the handle of
// legacy_amp.h.
#pragma once

namespace mezzo::amp::detail {

/// While it lives, the other interface cannot be opened anywhere in the process. Thread-safe.
class InterfaceUse {
 public:
  enum Kind { kInitialize, kLegacyHandle };

  /// Throws ConfigError, which says what to delete, where the other one is open.
  explicit InterfaceUse(Kind kind);
  ~InterfaceUse();
  InterfaceUse(const InterfaceUse&) = delete;
  InterfaceUse& operator=(const InterfaceUse&) = delete;

 private:
  Kind kind_;
};

}  // namespace mezzo::amp::detail
