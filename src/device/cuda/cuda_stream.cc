#include "device/cuda/cuda_stream.h"

#include "device/cuda/cuda_error.h"

namespace mererun::cuda {

Stream::Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cuda stream"); }
Stream::~Stream() { cudaStreamDestroy(stream_); }
void Stream::synchronize() const { check(cudaStreamSynchronize(stream_), "cuda synchronize"); }

Event::Event(Timing timing) {
  const unsigned flags = timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming;
  check(cudaEventCreateWithFlags(&event_, flags), "cuda event");
}
Event::~Event() { cudaEventDestroy(event_); }
void Event::record(const Stream& stream) {
  check(cudaEventRecord(event_, stream.get()), "cuda event record");
}
void Event::synchronize() const { check(cudaEventSynchronize(event_), "cuda event wait"); }

float Event::milliseconds_since(const Event& start) const {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, start.event_, event_), "cuda event time");
  return ms;
}

}  // namespace mererun::cuda
