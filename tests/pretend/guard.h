// Current devices and streams of threads.
#pragma once

#include <c10/core/Stream.h>

#include "streams.h"

namespace mezzo::pretend {

int current_device();
void set_current_device(int device);
StreamName current_stream(int device);
c10::Stream stream_of(const StreamName&);
StreamName name_of(const c10::Stream&);
StreamName make_stream(int device);

/// A cudaStream_t: null is the default stream of the current device.
void* handle_of(const StreamName&);
StreamName stream_of_handle(void* handle);

}  // namespace mezzo::pretend
