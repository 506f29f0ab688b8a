#include "amp/cast_listener.h"

#include <string>

#include "mezzo/messages.h"

namespace mezzo::amp::detail {
namespace {

void tell_cast(std::string_view op, at::ScalarType from, at::ScalarType to) {
  send_message(std::string("mezzo: ") + toString(from) + " -> " + toString(to) + " (" +
               std::string(op) + ")");
}

}  // namespace

const casting::CastListener& cast_listener() {
  static const casting::CastListener listener = tell_cast;
  return listener;
}

}  // namespace mezzo::amp::detail
