#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "decode/generation.h"
#include "decode/prefill.h"
#include "tests/support/models.h"

namespace mererun::testing {

/// Proposes whatever a function says: every accepted length can be forced.
class ScriptDrafter final : public Drafter {
 public:
  /// first: absolute position of the first draft; at most `depth` ids.
  using Script = std::function<std::vector<TokenId>(Position first, int depth)>;
  explicit ScriptDrafter(Script script) : script_(std::move(script)) {}

  void draft(const DraftRequest& request, std::vector<TokenId>& drafts) override {
    ++calls;
    for (const TokenId id : script_(request.state.length() + 1, request.depth)) drafts.push_back(id);
  }
  int calls = 0;

 private:
  Script script_;
};

/// Collects ids; ends on the budget, an end id, or whatever `stop` says of the ids so far.
class IdSink final : public ChoiceSink {
 public:
  int max_tokens = 0;
  std::vector<TokenId> eos;
  std::function<std::optional<FinishReason>(const std::vector<TokenId>&)> stop;
  bool logits = false;
  std::vector<TokenId> ids;
  std::vector<std::uint64_t> row_hashes;  // with logits

  ChoiceOutcome on_choice(const TargetChoice& choice) override;
  bool wants_logits() const override { return logits; }
};

/// The serial oracle: width-1 decoding from a fresh state, sharing no loop with decode/.
struct OracleRun {
  std::vector<TokenId> ids;  // n chosen tokens
  std::vector<std::vector<std::byte>>
      states;  // after evaluating the prompt and each chosen token, trunk only
};
OracleRun run_oracle(Model& model, std::span<const TokenId> prompt, int tokens,
                     const SamplingOptions& sampling = {}, TokenConstraint* constraint = nullptr);

/// `state_bytes` after what waits in the draft history has been evaluated, so that it doesn't matter how much
/// that was.
std::vector<std::byte> evaluated_bytes(Model& model, SequenceState& state);

struct GenerationSetup {
  std::vector<TokenId> prompt;
  SamplingOptions sampling = {};
  int max_tokens = 64;
  int width = 8;
  Drafter* drafter = nullptr;
  CostModel cost = FullDepth{};
  HistoryMode history = HistoryMode::kStreaming;
  int context_limit = 4096;
  const TokenConstraint* constraint = nullptr;  // a copy goes along
  const std::atomic<bool>* cancelled = nullptr;
  SpeculationProfile* profile = nullptr;
  const SequenceState* start = nullptr;  // the prompt's state, which is forked, where it is there already
};

/// A generation on a state of its own, before its first round. The arguments' drafter, flag and sink outlive
/// it.
struct StartedGeneration {
  StartedGeneration(Model& model, const GenerationSetup& setup, IdSink& sink);

  SequenceState state;
  Sampler sampler;
  std::optional<VerifyLog> log;  // with a drafter
  DepthPolicy policy;
  std::unique_ptr<TokenConstraint> constraint;
  Generation generation;
};

struct GenerationOutcome {
  std::vector<TokenId> ids;
  FinishReason finish = FinishReason::kError;
  Statistics statistics{0};
  int state_length = 0;
  int transitions = -1;  // -1 without a head
  std::vector<std::uint64_t> row_hashes;
};
/// One generation to its end.
GenerationOutcome run_generation(Model& model, const GenerationSetup& setup, IdSink& sink);

}  // namespace mererun::testing
