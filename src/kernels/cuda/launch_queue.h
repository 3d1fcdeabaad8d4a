#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace mererun::cuda {

/// Grid, block and shared memory of one launch.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  bool is_cooperative = false;  // blocks wait for one another: the device runs all of them at the same time
  unsigned cluster = 1;         // neighbouring blocks along x that see each other's shared memory
};

/// The shared memory, at least `bytes`, that keeps more blocks of a launch than needed from one
/// multiprocessor: two that fit may get one while others have none.
inline std::size_t spread_bytes(std::int64_t blocks, int multiprocessors, int shared_per_block,
                                std::size_t bytes) {
  const std::int64_t beside = std::max<std::int64_t>((blocks + multiprocessors - 1) / multiprocessors, 1);
  const auto most = static_cast<std::int64_t>(shared_per_block);
  return std::max(bytes, static_cast<std::size_t>(std::min(most / (beside + 1) + 1, most)));
}

/// One launch, its arguments by address.
struct KernelCall {
  const void* function = nullptr;
  const char* where = nullptr;  // a literal
  LaunchShape shape;
  bool early_start = false;
  void** arguments = nullptr;
};

/// Queues a kernel on a stream and checks the launch. Errors: kDevice naming `call.where`.
void launch_now(cudaStream_t stream, const KernelCall& call);

/// Collects launches, and replays sequences of them that come again as CUDA graphs: one call to the driver
/// for about a hundred kernels. A sequence is known by its bytes (kernels, shapes, every argument), so a
/// replay does what the launches would have done, whatever led to them. Nothing else needs to know.
///
/// Whoever uses the stream otherwise, waits for it, or frees memory that kernels use, calls flush first.
///
/// Thread-safety: one thread at a time.
class LaunchQueue {
 public:
  /// `before_flush` may add launches that were put off.
  LaunchQueue(cudaStream_t stream, std::function<void()> before_flush)
      : stream_(stream), before_flush_(std::move(before_flush)) {}
  ~LaunchQueue();
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;

  /// `sizes` and `call.arguments`: `count` arguments, copied.
  void add(const KernelCall& call, const std::size_t* sizes, int count);
  /// Hands everything collected to the driver. Errors: kDevice; what was collected is gone then.
  void flush();
  /// The same where nothing may be thrown; an error of the device shows in the next call.
  void flush_quietly() noexcept;
  /// Before its maker ends: `before_flush` is not called again.
  void detach() { before_flush_ = nullptr; }

  /// Graphs launched so far.
  std::uint64_t replays() const { return replays_; }

 private:
  struct Entry {
    KernelCall call;
    std::uint32_t first_argument, argument_count;  // in offsets_
  };
  struct Graph {
    std::vector<std::byte> key;
    cudaGraphExec_t exec = nullptr;
    std::uint64_t hash = 0;
  };
  using Graphs = std::list<Graph>;  // most recently used first

  void launch_all();
  void write_key();
  void replay(std::uint64_t hash);
  void forget_oldest();
  void flush_collected();

  cudaStream_t stream_;
  std::function<void()> before_flush_;
  std::vector<Entry> entries_;
  std::vector<std::byte> bytes_;        // arguments of all entries
  std::vector<std::uint32_t> offsets_;  // of each argument in bytes_
  std::vector<std::byte> key_;          // of the sequence being flushed
  bool after_wait_ = true;              // the device may be idle: the first run is short
  std::unordered_set<std::uint64_t> seen_;
  std::unordered_map<std::uint64_t, Graphs::iterator> by_hash_;
  Graphs graphs_;
  std::uint64_t replays_ = 0;
};

}  // namespace mererun::cuda
