// Generation rounds with a scripted drafter, on the tiny checkpoints: whatever is proposed, the output is the
// serial oracle's, and the state ends where the output ends.

#include <gtest/gtest.h>

#include "decode/mtp_drafter.h"
#include "model/flash_weights.h"
#include "tests/support/generation.h"

namespace mererun {
namespace {

using testing::GenerationOutcome;
using testing::GenerationSetup;
using testing::IdSink;
using testing::OracleRun;
using testing::ScriptDrafter;
using testing::StartedGeneration;

constexpr int kTokens = 96;
constexpr int kPrompt = 37;

class Rounds : public ::testing::TestWithParam<std::string> {
 protected:
  Rounds() : model_(testing::load_model(testing::golden_dir() / GetParam() / "mlx", "cpu")) {
    prompt_ = testing::random_ids(kPrompt, model_->config().vocabulary, 5);
    oracle_ = testing::run_oracle(*model_, prompt_, kTokens + 40);
  }

  GenerationOutcome generate(Drafter* drafter, int width, IdSink& sink, int max_tokens = kTokens) {
    GenerationSetup setup{.prompt = prompt_, .max_tokens = max_tokens, .width = width, .drafter = drafter};
    return testing::run_generation(*model_, setup, sink);
  }
  std::vector<TokenId> serial(int n) const { return {oracle_.ids.begin(), oracle_.ids.begin() + n}; }
  /// The oracle's token for an absolute position.
  TokenId truth(Position position) const { return oracle_.ids[static_cast<std::size_t>(position - kPrompt)]; }
  TokenId other(TokenId id) const { return (id + 1) % model_->config().vocabulary; }

  std::unique_ptr<Model> model_;
  std::vector<TokenId> prompt_;
  OracleRun oracle_;
};

void expect_consistent(const GenerationOutcome& o) {
  const Statistics& s = o.statistics;
  EXPECT_EQ(s.generated(), static_cast<std::int64_t>(o.ids.size()));
  EXPECT_EQ(s.generated(), s.rounds() + s.serial_rounds() + s.accepted());
  EXPECT_LE(s.accepted(), s.drafted());
  if (o.transitions >= 0) {
    EXPECT_EQ(o.transitions, o.state_length - 1) << "one transition per committed token but one";
  }
}

TEST_P(Rounds, EveryAcceptedLengthGivesTheSerialOutput) {
  for (int width = 2; width <= 9; ++width) {
    for (int accept = 0; accept < width; ++accept) {
      ScriptDrafter drafter([&](Position first, int depth) {
        std::vector<TokenId> ids;
        for (int j = 0; j < depth; ++j)
          ids.push_back(j < accept ? truth(first + j) : other(truth(first + j)));
        return ids;
      });
      IdSink sink;
      const GenerationOutcome o = generate(&drafter, width, sink);
      ASSERT_EQ(o.ids, serial(kTokens)) << "width " << width << " accept " << accept;
      expect_consistent(o);
      EXPECT_EQ(o.finish, FinishReason::kLength);
      if (accept == 0) {
        EXPECT_EQ(o.statistics.accepted(), 0);
      }
    }
  }
}

TEST_P(Rounds, SelfDraftIsFullyAccepted) {
  ScriptDrafter drafter([&](Position first, int depth) {
    std::vector<TokenId> ids;
    for (int j = 0; j < depth; ++j) ids.push_back(truth(first + j));
    return ids;
  });
  IdSink sink;
  const GenerationOutcome o = generate(&drafter, 8, sink);
  EXPECT_EQ(o.ids, serial(kTokens));
  EXPECT_EQ(o.statistics.accepted(), o.statistics.drafted());
  EXPECT_GT(o.statistics.drafted(), kTokens / 2);
  expect_consistent(o);
}

TEST_P(Rounds, DepthMayChangeEachRoundAndDraftsMayBeEmptyShortOrInvalid) {
  int call = 0;
  ScriptDrafter drafter([&](Position first, int depth) {
    const int lengths[] = {4, 1, 3, 2, 0, 0, 7, 5};
    std::vector<TokenId> ids;
    const int n = std::min(depth, lengths[call % 8]);
    for (int j = 0; j < n; ++j)
      ids.push_back((call + j) % 5 == 4 ? other(truth(first + j)) : truth(first + j));
    if (call % 7 == 6 && !ids.empty()) ids.back() = call % 2 == 0 ? -1 : 1 << 30;
    ++call;
    return ids;
  });
  IdSink sink;
  const GenerationOutcome o = generate(&drafter, 9, sink);
  EXPECT_EQ(o.ids, serial(kTokens));
  expect_consistent(o);
}

TEST_P(Rounds, RandomDraftsGiveTheSerialOutput) {
  std::uint64_t x = 99;
  ScriptDrafter drafter([&](Position first, int depth) {
    std::vector<TokenId> ids;
    for (int j = 0; j < depth; ++j) {
      x = x * 6364136223846793005ull + 1442695040888963407ull;
      ids.push_back((x >> 40) % 3 != 0 ? truth(first + j)
                                       : static_cast<TokenId>(
                                             (x >> 20) % static_cast<unsigned>(model_->config().vocabulary)));
    }
    return ids;
  });
  for (int width = 2; width <= 9; ++width) {
    IdSink sink;
    const GenerationOutcome o = generate(&drafter, width, sink);
    EXPECT_EQ(o.ids, serial(kTokens)) << "width " << width;
    expect_consistent(o);
  }
}

TEST_P(Rounds, AStopAtAnyTokenCutsTheRoundAndTheStateEndsThere) {
  ScriptDrafter drafter([&](Position first, int depth) {
    std::vector<TokenId> ids;
    for (int j = 0; j < depth; ++j) ids.push_back(truth(first + j));
    return ids;
  });
  for (std::size_t cut = 1; cut <= 20; ++cut) {
    IdSink sink;
    sink.stop = [&](const std::vector<TokenId>& ids) -> std::optional<FinishReason> {
      if (ids.size() == cut) return FinishReason::kStop;
      return std::nullopt;
    };
    GenerationOutcome o = generate(&drafter, 8, sink);
    EXPECT_EQ(o.ids, serial(static_cast<int>(cut)));
    EXPECT_EQ(o.finish, FinishReason::kStop) << "cut " << cut;
    expect_consistent(o);
    EXPECT_GE(o.state_length, kPrompt + static_cast<int>(cut) - 1);
    EXPECT_LE(o.state_length, kPrompt + static_cast<int>(cut));

    // The same place, reached as an end-of-sequence id: not emitted, not counted, whatever was drafted behind
    // it.
    const TokenId eos = oracle_.ids[cut];
    const auto first = std::find(oracle_.ids.begin(), oracle_.ids.end(), eos) - oracle_.ids.begin();
    IdSink eos_sink;
    eos_sink.eos = {eos};
    o = generate(&drafter, 8, eos_sink);
    EXPECT_EQ(o.ids, serial(static_cast<int>(first)));
    EXPECT_EQ(o.finish, FinishReason::kStop);
    EXPECT_EQ(o.state_length, kPrompt + static_cast<int>(first));
    expect_consistent(o);
  }
}

TEST_P(Rounds, ADraftedEndThatTheTargetRefusesEndsNothing) {
  const TokenId eos = [&] {
    for (TokenId id = 0;; ++id)
      if (std::find(oracle_.ids.begin(), oracle_.ids.end(), id) == oracle_.ids.end()) return id;
  }();
  ScriptDrafter drafter(
      [&](Position, int depth) { return std::vector<TokenId>(static_cast<std::size_t>(depth), eos); });
  IdSink sink;
  sink.eos = {eos};
  const GenerationOutcome o = generate(&drafter, 5, sink);
  EXPECT_EQ(o.ids, serial(kTokens));
  EXPECT_EQ(o.finish, FinishReason::kLength);
}

TEST_P(Rounds, TheBudgetIsMetExactlyAndNoDraftIsMadeBeyondIt) {
  for (int budget = 1; budget <= 12; ++budget) {
    ScriptDrafter drafter([&](Position first, int depth) {
      EXPECT_LE(first + depth, kPrompt + budget) << "a draft that could not be emitted";
      std::vector<TokenId> ids;
      for (int j = 0; j < depth; ++j) ids.push_back(truth(first + j));
      return ids;
    });
    IdSink sink;
    const GenerationOutcome o = generate(&drafter, 8, sink, budget);
    EXPECT_EQ(o.ids, serial(budget));
    EXPECT_EQ(o.finish, FinishReason::kLength);
    expect_consistent(o);
  }
}

TEST_P(Rounds, TheModelsOwnHeadGivesTheSerialOutput) {
  MtpDrafter drafter(*model_);
  for (const int width : {2, 4, 8, 9}) {
    for (const bool adaptive : {false, true}) {
      IdSink sink;
      GenerationSetup setup{.prompt = prompt_, .max_tokens = kTokens, .width = width, .drafter = &drafter};
      if (adaptive) setup.cost = FixedCost{};
      const GenerationOutcome o = testing::run_generation(*model_, setup, sink);
      EXPECT_EQ(o.ids, serial(kTokens)) << "width " << width << " adaptive " << adaptive;
      expect_consistent(o);
    }
  }
}

/// A generation on `state` until it holds exactly `length` positions; then all waiting transitions are
/// evaluated.
std::vector<std::byte> bytes_after(Model& model, const std::vector<TokenId>& prompt, int width,
                                   Drafter* drafter, int rounds, int length) {
  IdSink sink;
  StartedGeneration started(model, {.prompt = prompt, .max_tokens = 1000, .width = width, .drafter = drafter},
                            sink);
  SequenceState& state = started.state;
  for (int i = 0; i < rounds || state.length() < length; ++i) started.generation.round();
  return testing::evaluated_bytes(model, state);
}

/// Decodes `tokens` ids without drafts into the sink: the bytes of the state after each round.
std::vector<std::vector<std::byte>> serial_states(Model& model, const GenerationSetup& setup, int tokens,
                                                  IdSink& sink) {
  StartedGeneration serial(model, setup, sink);
  std::vector<std::vector<std::byte>> states;
  for (int i = 0; i < tokens; ++i) {
    serial.generation.round();
    SequenceState copy = serial.state.fork();
    states.push_back(testing::evaluated_bytes(model, copy));
  }
  return states;
}

TEST_P(Rounds, LogitsStateAndDraftHistoryHaveTheirSerialBitsAfterEveryAcceptedPrefix) {
  std::vector lengths{kPrompt, 60, 250, 1020};  // before the ends of a tile, a page and a segment
  if (GetParam() == "tiny-dense") lengths.push_back(4090);
  if (GetParam() == "tiny-moe") lengths.push_back(8190);
  for (const int length : lengths) {
    GenerationSetup setup{.prompt = testing::random_ids(length, model_->config().vocabulary, 5),
                          .max_tokens = 100,
                          .context_limit = 8400};
    SequenceState start = model_->new_sequence();
    Prefill(*model_, start, setup.prompt, {}).run();
    setup.start = &start;
    IdSink serial;
    serial.logits = true;
    const auto states = serial_states(*model_, setup, 33, serial);  // setup has no drafter yet
    for (const int width : {2, 3, 4, 5, 6, 7, 8, 9, 16, 32}) {
      for (int accept = 0; accept < width; ++accept) {
        ScriptDrafter drafter([&](Position first, int depth) {
          std::vector<TokenId> ids;
          for (int j = 0; j < depth; ++j) {
            const TokenId right = serial.ids[static_cast<std::size_t>(first - length + j)];
            ids.push_back(j < accept ? right : other(right));
          }
          return ids;
        });
        setup.width = width;
        setup.drafter = &drafter;
        IdSink sink;
        sink.logits = true;
        StartedGeneration drafted(*model_, setup, sink);
        drafted.generation.round();
        const auto rows = static_cast<std::ptrdiff_t>(accept) + 2;
        ASSERT_EQ(sink.row_hashes, std::vector(serial.row_hashes.begin(), serial.row_hashes.begin() + rows))
            << length << " tokens, width " << width << " accepted " << accept;
        ASSERT_TRUE(testing::evaluated_bytes(*model_, drafted.state) ==
                    states[static_cast<std::size_t>(accept)])
            << length << " tokens, width " << width << " accepted " << accept;
      }
    }
  }
}

TEST_P(Rounds, EveryCacheAndTheDraftHistoryEndWithTheirSerialBits) {
  // Accepted lengths 0 .. 7 in turn, some rounds of the head's own drafts before and after.
  MtpDrafter own(*model_);
  for (const int rounds : {1, 2, 5, 9}) {
    int call = 0, length = kPrompt;
    ScriptDrafter drafter([&](Position first, int depth) {
      std::vector<TokenId> ids;
      const int accept = call++ % 8;
      for (int j = 0; j < depth; ++j) ids.push_back(j < accept ? truth(first + j) : other(truth(first + j)));
      length = first + std::min(accept, depth);
      return ids;
    });
    const auto drafted = bytes_after(*model_, prompt_, 8, &drafter, rounds, 0);
    EXPECT_TRUE(drafted == bytes_after(*model_, prompt_, 8, nullptr, 0, length))
        << rounds << " scripted rounds";
  }
  for (const int rounds : {1, 3, 10}) {
    const auto drafted = bytes_after(*model_, prompt_, 6, &own, rounds, 0);
    bool found = false;  // where the head's own rounds end depends on what was accepted
    for (int length = kPrompt + rounds; !found && length <= kPrompt + 6 * rounds; ++length)
      found = drafted == bytes_after(*model_, prompt_, 6, nullptr, 0, length);
    EXPECT_TRUE(found) << rounds << " rounds of the model's own drafts";
  }
}

TEST_P(Rounds, LogitsOfVerifiedRowsAreTheSerialOnes) {
  IdSink serial_sink;
  serial_sink.logits = true;
  const GenerationOutcome expected = generate(nullptr, 2, serial_sink);
  MtpDrafter drafter(*model_);
  IdSink sink;
  sink.logits = true;
  const GenerationOutcome o = generate(&drafter, 8, sink);
  EXPECT_EQ(o.ids, expected.ids);
  EXPECT_EQ(o.row_hashes, expected.row_hashes);
}

TEST_P(Rounds, SampledOutputDoesNotDependOnDrafts) {
  MtpDrafter drafter(*model_);
  for (const double temperature : {0.3, 1.0, 1.5}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SamplingOptions sampling{.temperature = temperature, .top_k = 40, .top_p = 0.95, .seed = seed};
      if (seed == 2) {
        sampling.presence_penalty = 1.5;
        sampling.frequency_penalty = 0.5;
        sampling.repetition_penalty = 1.1;
      }
      const OracleRun oracle = testing::run_oracle(*model_, prompt_, kTokens, sampling);
      GenerationSetup setup{
          .prompt = prompt_, .sampling = sampling, .max_tokens = kTokens, .width = 6, .drafter = &drafter};
      IdSink sink;
      EXPECT_EQ(testing::run_generation(*model_, setup, sink).ids, oracle.ids)
          << "temperature " << temperature << " seed " << seed;
    }
  }
}

TEST_P(Rounds, PenaltiesAtTemperatureZeroCountAcceptedDrafts) {
  SamplingOptions sampling{.presence_penalty = 1.5, .frequency_penalty = 0.3};
  const OracleRun oracle = testing::run_oracle(*model_, prompt_, kTokens, sampling);
  MtpDrafter drafter(*model_);
  GenerationSetup setup{
      .prompt = prompt_, .sampling = sampling, .max_tokens = kTokens, .width = 8, .drafter = &drafter};
  IdSink sink;
  EXPECT_EQ(testing::run_generation(*model_, setup, sink).ids, oracle.ids);
}

/// Allows the ids that leave another remainder by 3 than the token before.
class OtherRemainder final : public TokenConstraint {
 public:
  explicit OtherRemainder(int vocabulary) : mask_(vocabulary) { accept(0); }
  const TokenMask* mask() override { return &mask_; }
  void accept(TokenId id) override {
    for (TokenId each = 0; each < mask_.vocabulary(); ++each) {
      if (each % 3 == id % 3)
        mask_.forbid(each);
      else
        mask_.allow(each);
    }
  }
  bool is_complete() const override { return false; }
  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<OtherRemainder>(*this); }

 private:
  TokenMask mask_;
};

/// The target's rows are masked one by one, whatever was drafted: what the form forbids, what it allows and
/// the target would not say, and the right tokens. With log-probabilities the host looks at every row,
/// without them only at those whose argmax is forbidden.
TEST_P(Rounds, AConstraintHoldsWhateverIsDrafted) {
  const OtherRemainder form(model_->config().vocabulary);
  for (const double temperature : {0.0, 1.0}) {
    const SamplingOptions sampling{.temperature = temperature, .seed = 3};
    const auto oracle_form = form.clone();
    const auto want = testing::run_oracle(*model_, prompt_, kTokens, sampling, oracle_form.get()).ids;
    const auto said = [&](Position position, int shift) {
      const auto at = std::min<std::size_t>(static_cast<std::size_t>(position - kPrompt), want.size() - 1);
      return (want[at] + shift) % model_->config().vocabulary;
    };
    ScriptDrafter scripted([&](Position first, int depth) {
      std::vector<TokenId> ids;  // right ones, then one of another remainder, then one of the same
      for (int j = 0; j < depth; ++j) ids.push_back(said(first + j, j < first % 4 ? 0 : 1 + 2 * (first % 2)));
      return ids;
    });
    MtpDrafter own(*model_);
    for (Drafter* drafter : std::initializer_list<Drafter*>{nullptr, &scripted, &own}) {
      for (const bool logits : {false, true}) {
        IdSink sink;
        sink.logits = logits;
        GenerationSetup setup{
            .prompt = prompt_, .sampling = sampling, .max_tokens = kTokens, .width = 6, .drafter = drafter};
        setup.constraint = &form;
        const GenerationOutcome o = testing::run_generation(*model_, setup, sink);
        EXPECT_EQ(o.ids, want) << "temperature " << temperature << " logits " << logits;
        expect_consistent(o);
      }
    }
  }
}

TEST_P(Rounds, EveryHistoryModeGivesTheSameOutput) {
  MtpDrafter drafter(*model_);
  for (const HistoryMode mode : {HistoryMode::kNone, HistoryMode::kRetained, HistoryMode::kStreaming}) {
    GenerationSetup setup{
        .prompt = prompt_, .max_tokens = kTokens, .width = 5, .drafter = &drafter, .history = mode};
    IdSink sink;
    const GenerationOutcome o = testing::run_generation(*model_, setup, sink);
    EXPECT_EQ(o.ids, serial(kTokens)) << name_of(mode);
    expect_consistent(o);
  }
}

TEST_P(Rounds, CancellationEndsBetweenRoundsAndKeepsTheCommittedState) {
  IdSink sink;
  std::atomic<bool> cancelled{false};
  StartedGeneration started(*model_, {.prompt = prompt_, .max_tokens = kTokens, .cancelled = &cancelled},
                            sink);
  Generation& generation = started.generation;
  for (int i = 0; i < 5; ++i) generation.round();
  cancelled = true;
  generation.round();
  EXPECT_EQ(generation.finish(), FinishReason::kCancelled);
  EXPECT_EQ(generation.tokens(), serial(6));
  EXPECT_EQ(started.state.length(), kPrompt + 5);
}

TEST_P(Rounds, ADrafterThatGivesNothingIsSoonLeftAlone) {
  ScriptDrafter silent([](Position, int) { return std::vector<TokenId>(); });
  SpeculationProfile profile;
  IdSink sink;
  const GenerationOutcome o = testing::run_generation(*model_,
                                                      {.prompt = prompt_,
                                                       .max_tokens = kTokens,
                                                       .width = 5,
                                                       .drafter = &silent,
                                                       .cost = FixedCost{},
                                                       .profile = &profile},
                                                      sink);
  EXPECT_EQ(o.ids, serial(kTokens));
  expect_consistent(o);
  EXPECT_EQ(o.statistics.drafted(), 0);
  EXPECT_GT(silent.calls, 1) << "it is probed";
  EXPECT_LT(silent.calls, kTokens / 4) << "a round that wanted drafts and got none counts as wrong drafts";
  // The profile has what was spent on them, round by round.
  EXPECT_EQ(static_cast<int>(profile.rounds.size()), silent.calls);
  EXPECT_EQ(static_cast<int>(profile.rounds.size()) + profile.serial_rounds, kTokens - 1);
  for (const SpeculationProfile::Round& round : profile.rounds) EXPECT_EQ(round.draft_depth, 0);
}

TEST(FlashRounds, TableRowsAreReadAheadOfTheirPass) {
  const auto model = testing::load_model(testing::golden_dir() / "tiny-flash" / "mlx", "cpu");
  const NgramTable& table = *model->weights().layers[1].flash->ngram->table;
  GenerationSetup setup{
      .prompt = testing::random_ids(kPrompt, model->config().vocabulary, 5), .max_tokens = 48, .width = 4};
  MtpDrafter drafter(*model);
  setup.drafter = &drafter;
  IdSink sink;
  const GenerationOutcome o = testing::run_generation(*model, setup, sink);
  EXPECT_GT(o.statistics.drafted(), 0);
  // Prompt and drafted rounds are announced: only what a serial round evaluates was not on its way.
  const TableStatistics& s = table.statistics();
  EXPECT_GT(s.ahead, 0u);
  EXPECT_LE(s.distinct - s.cached,
            static_cast<std::uint64_t>(o.statistics.serial_rounds() * table.hash().rows_per_token()));
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, Rounds, ::testing::Values("tiny-dense", "tiny-moe", "tiny-flash"), [](const auto& p) {
      return std::string(p.param == "tiny-dense" ? "Dense" : p.param == "tiny-moe" ? "Moe" : "Flash");
    });

}  // namespace
}  // namespace mererun
