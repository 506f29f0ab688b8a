#include "mezzo/messages.h"

#include <cstdio>
#include <mutex>
#include <utility>

namespace mezzo {
namespace {

struct Place {
  std::mutex mutex;
  MessageSink sink = [](const std::string& text) { std::fputs((text + "\n").c_str(), stderr); };
};

Place& place() {
  static Place the_place;
  return the_place;
}

}  // namespace

MessageSink set_message_sink(MessageSink sink) {
  const std::lock_guard lock(place().mutex);
  return std::exchange(place().sink, std::move(sink));
}

void send_message(const std::string& text) {
  MessageSink sink;
  {
    // Called outside the lock, so that a sink may send, or replace itself.
    const std::lock_guard lock(place().mutex);
    sink = place().sink;
  }
  if (sink) sink(text);
}

}  // namespace mezzo
