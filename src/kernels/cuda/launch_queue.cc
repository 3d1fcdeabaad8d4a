#include "kernels/cuda/launch_queue.h"

#include <cstring>
#include <utility>

#include "device/cuda/cuda_error.h"

namespace mererun::cuda {

namespace {

// The device computes one sequence while the host collects the next; a short first one gives it work soon.
constexpr std::size_t kFirstRun = 24, kRun = 96;
constexpr std::size_t kMostGraphs = 384, kMostSeen = 8192;
constexpr std::size_t kArgumentAlignment = 16;

std::uint64_t hash_of(const std::vector<std::byte>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  for (; i < bytes.size(); ++i) hash = (hash ^ static_cast<std::uint64_t>(bytes[i])) * 0x100000001b3u;
  return hash;
}

/// The launches between construction and end() as a graph. Ends the capture also when a launch throws.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cuda capture");
  }
  ~Capture() {
    if (stream_ != nullptr) {
      cudaStreamEndCapture(stream_, &graph_);
      cudaGetLastError();
    }
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraphExec_t instantiate() {
    check(cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph_), "cuda capture");
    cudaGraphExec_t exec = nullptr;
    check(cudaGraphInstantiate(&exec, graph_, 0), "cuda graph");
    return exec;
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
};

}  // namespace

void launch_now(cudaStream_t stream, const KernelCall& call) {
  cudaLaunchConfig_t config{};
  config.gridDim = call.shape.grid;
  config.blockDim = call.shape.block;
  config.dynamicSmemBytes = call.shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[3]{};
  config.attrs = attributes;
  if (call.early_start) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (call.shape.is_cooperative) {
    cudaLaunchAttribute& cooperative = attributes[config.numAttrs++];
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
  }
  if (call.shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = call.shape.cluster;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  check(cudaLaunchKernelExC(&config, call.function, call.arguments), call.where);
}

LaunchQueue::~LaunchQueue() {
  for (Graph& graph : graphs_) cudaGraphExecDestroy(graph.exec);
}

void LaunchQueue::add(const KernelCall& call, const std::size_t* sizes, int count) {
  Entry entry{call, static_cast<std::uint32_t>(offsets_.size()), static_cast<std::uint32_t>(count)};
  entry.call.arguments = nullptr;
  for (int i = 0; i < count; ++i) {
    const std::size_t at = (bytes_.size() + kArgumentAlignment - 1) / kArgumentAlignment * kArgumentAlignment;
    bytes_.resize(at + sizes[i]);  // what alignment skips is zero
    std::memcpy(bytes_.data() + at, call.arguments[i], sizes[i]);
    offsets_.push_back(static_cast<std::uint32_t>(at));
  }
  entries_.push_back(entry);
  if (entries_.size() < (after_wait_ ? kFirstRun : kRun)) return;
  flush_collected();
  after_wait_ = false;
}

void LaunchQueue::write_key() {
  struct Head {
    const void* function;
    std::uint64_t shared_bytes;
    std::uint32_t grid[3], block[3], arguments, attributes;
  };
  static_assert(sizeof(Head) == 48);  // no padding
  key_.resize(entries_.size() * sizeof(Head) + bytes_.size());
  std::byte* to = key_.data();
  for (const Entry& entry : entries_) {
    const LaunchShape& s = entry.call.shape;
    const Head head{entry.call.function,
                    s.shared_bytes,
                    {s.grid.x, s.grid.y, s.grid.z},
                    {s.block.x, s.block.y, s.block.z},
                    entry.argument_count,
                    (entry.call.early_start ? 1u : 0u) | (s.is_cooperative ? 2u : 0u) | s.cluster << 2};
    std::memcpy(to, &head, sizeof head);
    to += sizeof head;
  }
  if (!bytes_.empty()) std::memcpy(to, bytes_.data(), bytes_.size());
}

void LaunchQueue::launch_all() {
  std::vector<void*> arguments;
  for (const Entry& entry : entries_) {
    arguments.clear();
    for (std::uint32_t i = 0; i < entry.argument_count; ++i)
      arguments.push_back(bytes_.data() + offsets_[entry.first_argument + i]);
    KernelCall call = entry.call;
    call.arguments = arguments.data();
    launch_now(stream_, call);
  }
}

void LaunchQueue::replay(std::uint64_t hash) {
  const auto known = by_hash_.find(hash);
  if (known != by_hash_.end()) {
    // Of two sequences of one hash the later one is launched kernel by kernel.
    if (known->second->key != key_) return launch_all();
    graphs_.splice(graphs_.begin(), graphs_, known->second);
  } else {
    if (graphs_.size() >= kMostGraphs) forget_oldest();
    Capture capture(stream_);
    launch_all();
    graphs_.push_front({key_, capture.instantiate(), hash});
    by_hash_[hash] = graphs_.begin();
  }
  check(cudaGraphLaunch(graphs_.front().exec, stream_), "cuda graph launch");
  ++replays_;
}

void LaunchQueue::forget_oldest() {
  check(cudaStreamSynchronize(stream_), "cuda synchronize");  // it may be running
  cudaGraphExecDestroy(graphs_.back().exec);
  by_hash_.erase(graphs_.back().hash);
  graphs_.pop_back();
}

void LaunchQueue::flush() {
  if (before_flush_) before_flush_();
  after_wait_ = true;
  flush_collected();
}

void LaunchQueue::flush_collected() {
  if (entries_.empty()) return;
  struct Clear {
    LaunchQueue& queue;
    ~Clear() {
      queue.entries_.clear();
      queue.bytes_.clear();
      queue.offsets_.clear();
    }
  } clear{*this};
  write_key();
  const std::uint64_t hash = hash_of(key_);
  if (by_hash_.contains(hash) || seen_.contains(hash)) return replay(hash);
  // A sequence that comes once is not worth a graph.
  if (seen_.size() >= kMostSeen) seen_.clear();
  seen_.insert(hash);
  launch_all();
}

void LaunchQueue::flush_quietly() noexcept {
  try {
    flush();
  } catch (...) {
    // The device's error is sticky and shows in the next call that may throw.
  }
}

}  // namespace mererun::cuda
