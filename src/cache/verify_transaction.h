#pragma once

#include "cache/sequence_state.h"
#include "device/buffer.h"
#include "tensor/tensor_view.h"

namespace mererun {

/// What a verification pass writes down per delta layer, so that any prefix of its rows can be replayed.
struct DeltaLog {
  TensorView inputs;  // [W, C] f32, conv inputs
  TensorView k;       // [W, Nk * Dk] f32
  TensorView u;       // [W, Nv * Dv] f32
  TensorView alpha;   // [W, Nv] f32
};

/// Memory for the logs of one verification of up to `max_width` rows; reused round after round.
class VerifyLog {
 public:
  VerifyLog(Ops& ops, const StateGeometry& geometry, int max_width);
  VerifyLog(VerifyLog&&) noexcept = default;

  int max_width() const { return max_width_; }
  /// Views of `width` rows of one delta layer's log.
  DeltaLog layer(int index, int width) const;
  /// Convolution inputs of the n-gram layer, [width, ngram_cols] f32.
  TensorView ngram_inputs(int width) const;

  static std::size_t size_bytes(const StateGeometry& geometry, int max_width);

 private:
  StateGeometry geometry_;
  int max_width_;
  Buffer buffer_;
};

/// The only way to make verified rows permanent. Opened on a state at position n, it reserves `width` KV
/// rows; a pass in between reads the base state and writes rows past n and the log. commit(k) moves every
/// cache to n + k; a transaction that ends without commit leaves the state as it was.
///
/// Rollback: KV and index keys by length (a pooled key past it is dead until its block completes again);
/// delta states by replaying the logged (k, u, alpha) of the first k rows, the same operations on the same
/// bits as serial decoding; conv windows from the logged inputs. Source: kernel design "replay log"; no state
/// is copied per row.
class VerifyTransaction {
 public:
  /// Errors: kInvalidArgument if width exceeds the log; kOutOfMemory from the reservation.
  VerifyTransaction(SequenceState& state, VerifyLog& log, int width);
  VerifyTransaction(const VerifyTransaction&) = delete;
  VerifyTransaction& operator=(const VerifyTransaction&) = delete;

  SequenceState& state() const { return state_; }
  int width() const { return width_; }
  DeltaLog layer(int index) const { return log_.layer(index, width_); }
  TensorView ngram_inputs() const { return log_.ngram_inputs(width_); }
  /// The pass's token ids, one a row, before the commit; needed where n-grams look back.
  void note_tokens(std::span<const TokenId> ids) { tokens_.assign(ids.begin(), ids.end()); }

  /// Makes rows [0, rows) permanent; 0 <= rows <= width. `hidden` [width, H] is the pass's output: row rows -
  /// 1 becomes the state's last hidden row. At most once.
  void commit(int rows, TensorView hidden);

 private:
  SequenceState& state_;
  VerifyLog& log_;
  int width_;
  std::vector<TokenId> tokens_;
  bool committed_ = false;
};

}  // namespace mererun
