// Streams of the pretend device that run as late as a GPU's may.
#pragma once

#include <c10/core/Stream.h>

#include "tests/device/pretend_graph.h"

namespace prunex::tests {

/// While it lives, what a stream is given waits in it, until the host waits for the stream or for an event behind it,
/// or another stream has come to such an event. So what should wait and does not finds memory as it was before, and
/// every time: zeros, if it is new, so that what was not computed yet can be an index. Memory is not given to others
/// before it was read: that it is freed too early does not show. Ends with all of it done; threads that give the device
/// work must have ended before.
class LateStreams {
 public:
  LateStreams();
  ~LateStreams();
  LateStreams(const LateStreams&) = delete;
  LateStreams& operator=(const LateStreams&) = delete;
};

// For the backend.

/// Where the current stream's kernels wait; null without LateStreams.
Recorder* late_stream();
void record_late_event(void** event, const c10::Stream& stream);
void block_late_stream(void* event, const c10::Stream& stream);
void wait_for_late_event(void* event);
void wait_for_late_stream(const c10::Stream& stream);
void destroy_late_event(void* event);

}  // namespace prunex::tests
