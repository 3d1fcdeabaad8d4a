#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "engine/request.h"
#include "model/model.h"

namespace mererun {

struct VerificationOptions {
  std::vector<int> widths;  // each 1..32
  int tokens = 128;         // rows to verify
  int trials = 2;           // passes over all widths, every second one in reverse order
  int certified_width = 9;  // wider rows say that they are not certified
};

/// The truth that every width must reproduce: serial decoding, one row a pass.
struct VerificationOracle {
  TokenId first_choice = 0;         // of the prompt's last row
  std::vector<TokenId> inputs;      // [T] token of each row
  std::vector<TokenId> choices;     // [T] argmax of each row
  std::vector<std::string> hashes;  // [T] SHA-256 of each row of logits, NaN and -0 in one spelling each
  /// [layer][T] the experts each row chose; empty unless they were recorded.
  std::vector<std::vector<std::vector<std::int32_t>>> experts;
  double seconds = 0;  // forward passes and logits only
};

struct VerificationMismatch {
  int row = 0;
  TokenId expected = 0;
  TokenId got = 0;  // equals `expected` where only the logits differ
};

/// One width in one trial.
struct VerificationRow {
  int width = 0;
  int trial = 0;  // from 1
  bool certified = true;
  int verified_tokens = 0;
  int passes = 0;
  double seconds = 0;          // forward pass and logits only
  bool greedy_parity = false;  // every row chose the oracle's token
  bool logits_parity = false;  // every row's logits are the oracle's, bit for bit
  std::optional<VerificationMismatch> first_mismatch = std::nullopt;
  std::uint64_t active_memory_bytes = 0;  // resident in this process
  std::uint64_t cache_memory_bytes = 0;  // of them, of the sequence: KV pages, delta states, verification log

  bool passes_parity() const { return greedy_parity && logits_parity; }
  /// Rows a second; absent where parity fails: such a rate says nothing.
  std::optional<double> rate() const;
};

/// Means over the layers and slices of how many different experts a slice of `width` rows reads.
double distinct_experts_per_slice(const VerificationOracle& oracle, int width);

/// Verifies a model against its own serial decoding at several widths. Target only: neither drafting nor
/// rollback is part of it, so its rate is capacity and not generation speed.
///
/// Thread-safety: one thread only.
class VerificationBenchmark {
 public:
  /// Evaluates `prompt`. Everything outlives it; a set `cancelled` ends each call with kCancelled.
  VerificationBenchmark(Model& model, std::span<const TokenId> prompt, const std::atomic<bool>& cancelled);

  /// Decodes `tokens` rows serially, by argmax.
  VerificationOracle greedy_oracle(int tokens);
  /// The same with given rows, whatever the model would choose; records the experts of a mixture.
  VerificationOracle forced_oracle(std::vector<TokenId> inputs);

  /// Feeds the oracle in slices of `width` rows from the prefilled state.
  VerificationRow verify(const VerificationOracle& oracle, int width, int trial);

  /// All widths, trial by trial. `on_row` (may be empty) sees each row when it is done.
  std::vector<VerificationRow> run(const VerificationOracle& oracle, const VerificationOptions& options,
                                   const std::function<void(const VerificationRow&)>& on_row = {});

 private:
  struct RowResult {
    TokenId choice = 0;
    std::string hash;
  };
  VerificationOracle decode(std::vector<TokenId> given, int tokens);
  /// One pass; its results are on the device until the next.
  struct TimedPass {
    TensorView hidden, logits;
    double seconds = 0;
  };
  TimedPass evaluate(std::span<const TokenId> ids, const PassSegment& segment);
  /// The rows' choices and hashes, from logits on the device.
  std::vector<RowResult> read_rows(TensorView logits);
  void check_cancelled() const;
  std::uint64_t cache_bytes(const SequenceState& state, int width) const;

  Model& model_;
  const std::atomic<bool>& cancelled_;
  SequenceState prefilled_;
  std::vector<float> scratch_;  // [W, V]
};

/// Median rate and its ratio to that of width 1, by width in ascending order.
struct VerificationSummary {
  int width = 0;
  std::optional<double> median_rate;   // absent where a trial failed
  std::optional<double> ratio_to_one;  // absent without width 1
};
std::vector<VerificationSummary> summarise(const std::vector<VerificationRow>& rows);

/// The message that the benchmark verifies: the text of qualification's code step.
std::string verification_prompt();

}  // namespace mererun
