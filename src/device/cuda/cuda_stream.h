#pragma once

#include <cuda_runtime_api.h>

namespace mererun::cuda {

/// Owns a stream that does not wait for the default stream. Errors of the constructor: kDevice.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  /// Blocks until everything queued is done. Errors: kDevice, also for kernels queued earlier.
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

/// Owns an event. Errors of the constructor: kDevice.
class Event {
 public:
  enum class Timing { kOff, kOn };
  explicit Event(Timing timing = Timing::kOff);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream);
  /// Blocks until the recorded point; returns at once if never recorded.
  void synchronize() const;
  /// Milliseconds between two recorded and finished events with timing.
  float milliseconds_since(const Event& start) const;

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace mererun::cuda
