#include "engine/snapshot_proof.h"

#include <algorithm>

#include "base/sha256.h"
#include "kernels/attention.h"

namespace mererun {
namespace {

constexpr int kDrafts = 4;

void add_device_bytes(Sha256& hash, Ops& ops, const void* data, std::size_t size) {
  if (size == 0) return;
  std::vector<std::byte> bytes(size);
  ops.download(bytes.data(), data, size);
  hash.update(bytes);
}

/// Whole pages only: in the last one some positions are dead.
void add_pages(Sha256& hash, Ops& ops, const KvCache& cache) {
  const std::vector<KvPageRef> pages = cache.share_pages();
  for (int i = 0; i < cache.length() / kKvPagePositions; ++i) {
    const Buffer& bytes = pages[static_cast<std::size_t>(i)]->bytes;
    add_device_bytes(hash, ops, bytes.data(), bytes.size_bytes());
  }
}

std::string hash_state(Ops& ops, const Snapshot& snapshot) {
  const SequenceState& state = snapshot.state();
  Sha256 hash;
  hash.update(std::as_bytes(snapshot.ids()));
  hash.update(std::as_bytes(snapshot.logits()));
  add_device_bytes(hash, ops, state.last_hidden().data,
                   static_cast<std::size_t>(state.geometry().hidden) * sizeof(float));
  add_device_bytes(hash, ops, state.recurrent().bytes().data(), state.recurrent().bytes().size_bytes());
  add_pages(hash, ops, state.kv());
  if (const auto& history = state.history()) {
    add_pages(hash, ops, history->cache());
    const TensorView waiting = history->waiting_hidden();
    add_device_bytes(
        hash, ops, waiting.data,
        static_cast<std::size_t>(waiting.rows) * static_cast<std::size_t>(waiting.cols) * sizeof(float));
    hash.update(std::as_bytes(std::span(history->waiting_tokens())));
  }
  return hash.finish_hex();
}

}  // namespace

SnapshotProof prove_snapshot(Engine& engine, const Snapshot& snapshot) {
  SnapshotProof proof;
  proof.state_sha256 = hash_state(engine.model().ops(), snapshot);
  const auto logits = snapshot.logits();
  if (logits.empty() || engine.drafter() == nullptr || !snapshot.has_whole_history()) return proof;
  SequenceState state = snapshot.restore();
  Sampler greedy({}, snapshot.ids());
  const TokenId pending =
      static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  state.history()->append(state.last_hidden(), {&pending, 1});
  engine.drafter()->draft({state, pending, kDrafts, greedy, nullptr}, proof.first_drafts);
  return proof;
}

}  // namespace mererun
