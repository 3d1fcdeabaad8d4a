#pragma once

#include <memory>
#include <vector>

#include "base/types.h"
#include "cache/kv_cache.h"
#include "device/buffer.h"
#include "tensor/tensor_view.h"

namespace mererun {

/// What the MTP head knows of a sequence: its own KV cache over confirmed transitions (hidden of token t,
/// token t+1), and the transitions that wait to be evaluated.
///
/// Transition t sits in slot t - base() of the cache: base() is 0 unless the prompt's transitions were left
/// out (history mode none), and the rotary position is t in every case. Invariant between rounds: base +
/// evaluated + waiting = committed positions - 1. Thread-safety: one thread at a time.
class DraftHistory {
 public:
  DraftHistory(Ops& ops, std::shared_ptr<KvPagePool> pool, int hidden);
  DraftHistory(DraftHistory&&) noexcept = default;
  DraftHistory& operator=(DraftHistory&&) noexcept = default;

  KvCache& cache() { return cache_; }
  const KvCache& cache() const { return cache_; }
  int evaluated() const { return cache_.length(); }
  int waiting() const { return static_cast<int>(tokens_.size()); }
  int transitions() const { return evaluated() + waiting(); }
  int base() const { return base_; }
  /// Forgets everything; what follows starts at transition `base`.
  void restart_at(int base);

  /// Appends transitions (hidden[i], tokens[i]). hidden: [n, H] f32 on the device.
  void append(TensorView hidden, std::span<const TokenId> tokens);
  /// Drops the first n waiting transitions after their evaluation.
  void pop_front(int n);

  TensorView waiting_hidden() const;  // [waiting, H] f32
  const std::vector<TokenId>& waiting_tokens() const { return tokens_; }

  /// Bytes of the waiting rows' memory; a fork's are exactly what waits.
  std::size_t row_bytes() const { return rows_.size_bytes(); }

  /// A copy that shares cache pages.
  DraftHistory fork() const;
  /// Restores from a snapshot's parts.
  static DraftHistory restore(Ops& ops, KvCache cache, int base, TensorView waiting_hidden,
                              std::span<const TokenId> tokens);

 private:
  DraftHistory(Ops& ops, KvCache cache, int hidden) : ops_(&ops), hidden_(hidden), cache_(std::move(cache)) {}
  void grow(int rows);

  Ops* ops_;
  int hidden_;
  int base_ = 0;
  KvCache cache_;
  Buffer rows_;    // [capacity, H] f32
  int first_ = 0;  // index of the first waiting row in rows_
  std::vector<TokenId> tokens_;
};

}  // namespace mererun
