#include "amp/interface_use.h"

#include <array>
#include <mutex>

#include "core/raise.h"

namespace mezzo::amp::detail {
namespace {

struct Uses {
  std::mutex mutex;
  std::array<int, 2> open{};
};

Uses& uses() {
  static Uses* const the_uses = new Uses;  // never destroyed: handles may outlive main
  return *the_uses;
}

}  // namespace

InterfaceUse::InterfaceUse(Kind kind) : kind_(kind) {
  const std::lock_guard lock(uses().mutex);
  if (kind == kInitialize && uses().open[kLegacyHandle] > 0) {
    raise<ConfigError>("initialize",
                       "a handle of legacy::init is alive, which casts everything on its thread; "
                       "delete init: initialize does its work");
  }
  if (kind == kLegacyHandle && uses().open[kInitialize] > 0) {
    raise<ConfigError>("legacy::init",
                       "a network that initialize returned is alive; delete init: initialize does "
                       "its work");
  }
  ++uses().open[kind];
}

InterfaceUse::~InterfaceUse() {
  const std::lock_guard lock(uses().mutex);
  --uses().open[kind_];
}

}  // namespace mezzo::amp::detail
