// Messages of the library to a person, and where they go.
#pragma once

#include <functional>
#include <string>

#include "mezzo/export.h"

namespace mezzo {

/// Takes one message, which may have several lines; no line end at its end. Called on the thread
/// that has something to say. An exception from it reaches the caller of the function that spoke.
using MessageSink = std::function<void(const std::string& text)>;

/// Replaces the sink of the process and returns the one before; an empty function is silence. The
/// first sink writes to standard error. `Options::verbosity` decides whether there is anything to
/// say. Thread-safe.
MEZZO_API MessageSink set_message_sink(MessageSink sink);

/// Hands a message to the sink.
MEZZO_API void send_message(const std::string& text);

}  // namespace mezzo
