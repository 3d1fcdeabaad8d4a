// The draft history of a prompt: N - 1 transitions whatever the chunks, evaluated in groups of 256 counted
// from position 0, the same bits streamed or retained.

#include <gtest/gtest.h>

#include "decode/draft_history_pass.h"
#include "decode/mtp_drafter.h"
#include "tests/support/generation.h"

namespace mererun {
namespace {

using testing::GenerationSetup;
using testing::IdSink;
using testing::StartedGeneration;

class History : public ::testing::TestWithParam<std::string> {
 protected:
  History() : model_(testing::load_model(testing::golden_dir() / GetParam() / "mlx", "cpu")) {}

  std::vector<TokenId> ids(int n) const { return testing::random_ids(n, model_->config().vocabulary, 17); }

  SequenceState prefilled(int n, int chunk, HistoryMode mode) {
    SequenceState state = model_->new_sequence();
    const auto prompt = ids(n);
    Prefill(*model_, state, prompt, {.chunk = chunk, .history = mode}).run();
    return state;
  }

  std::vector<TokenId> drafts_of(SequenceState& state) {
    MtpDrafter drafter(*model_);
    Sampler sampler({}, ids(state.length()));
    const TokenId pending = 3;
    state.history()->append(state.last_hidden(), {&pending, 1});
    std::vector<TokenId> drafts;
    drafter.draft({state, pending, 4, sampler, nullptr}, drafts);
    return drafts;
  }

  std::unique_ptr<Model> model_;
};

TEST_P(History, AStreamedPromptOfNTokensGivesNMinusOneTransitions) {
  for (const int n : {1, 2, 255, 256, 257, 258, 512, 513, 601}) {
    for (const int chunk : {1024, 256, 100, 7}) {
      SequenceState state = prefilled(n, chunk, HistoryMode::kStreaming);
      const DraftHistory& history = *state.history();
      EXPECT_EQ(history.transitions(), n - 1) << "chunk " << chunk;
      EXPECT_EQ(history.evaluated(), (n - 1) / 256 * 256) << "whole groups, counted from position 0";
      EXPECT_LT(history.waiting(), 256);
    }
  }
}

TEST_P(History, ChunksAndModesGiveTheSameBitsAndDrafts) {
  for (const int n : {257, 512, 601}) {
    SequenceState whole = prefilled(n, 1024, HistoryMode::kStreaming);
    const auto expected_drafts = drafts_of(whole);
    const auto expected = testing::evaluated_bytes(*model_, whole);
    EXPECT_EQ(expected_drafts.size(), 4u);
    for (const int chunk : {1, 64, 300}) {
      for (const HistoryMode mode : {HistoryMode::kStreaming, HistoryMode::kRetained}) {
        SequenceState state = prefilled(n, chunk, mode);
        EXPECT_EQ(drafts_of(state), expected_drafts)
            << n << " tokens, chunk " << chunk << ", " << name_of(mode);
        EXPECT_TRUE(testing::evaluated_bytes(*model_, state) == expected)
            << n << " tokens, chunk " << chunk << ", " << name_of(mode);
      }
    }
  }
}

TEST_P(History, WhatNobodyReadsIsLeftOutAndTheRestHasTheBitsOfWholePasses) {
  MtpHead& head = *model_->head();
  for (const int n : {2, 3, 8, 257, 601}) {
    SequenceState whole = prefilled(n, 1024, HistoryMode::kRetained);
    DraftHistory& history = *whole.history();
    const int rows = history.waiting();
    const TensorView out =
        head.forward(history.waiting_hidden(), history.waiting_tokens(), 0, history.base(), history.cache());
    const auto expected = testing::to_host(model_->ops(), out.row_range(rows - 1, 1));
    history.cache().set_length(rows);
    history.pop_front(rows);
    const auto expected_bytes = testing::state_bytes(whole);
    for (const int max_rows : {1, 2, 100, 1024}) {
      SequenceState state = prefilled(n, 1024, HistoryMode::kRetained);
      const TensorView last = evaluate_waiting(head, *state.history(), max_rows);
      EXPECT_TRUE(testing::to_host(model_->ops(), last) == expected) << n << " tokens by " << max_rows;
      EXPECT_TRUE(testing::state_bytes(state) == expected_bytes) << n << " tokens by " << max_rows;
    }
  }
}

TEST_P(History, RetainedKeepsEveryRowWaitingAndNoneKeepsNothing) {
  SequenceState retained = prefilled(601, 256, HistoryMode::kRetained);
  EXPECT_EQ(retained.history()->waiting(), 600);
  EXPECT_EQ(retained.history()->evaluated(), 0);
  SequenceState none = prefilled(601, 256, HistoryMode::kNone);
  EXPECT_EQ(none.history()->transitions(), 0);
  EXPECT_EQ(none.history()->base(), 600) << "the first decoded transition keeps its rotary position";
}

TEST_P(History, AResumedPrefillGoesOnWhereItStopped) {
  const auto prompt = ids(601);
  SequenceState cold = prefilled(601, 1024, HistoryMode::kStreaming);
  for (const int cut : {1, 255, 256, 257, 511, 600}) {
    SequenceState first = model_->new_sequence();
    const std::vector<TokenId> part(prompt.begin(), prompt.begin() + cut);
    Prefill(*model_, first, part, {.chunk = 100}).run();
    SequenceState resumed = first.fork();
    Prefill(*model_, resumed, prompt, {.chunk = 64}).run();
    EXPECT_EQ(resumed.history()->transitions(), 600) << "cut " << cut;
    SequenceState cold_copy = cold.fork();
    EXPECT_TRUE(testing::evaluated_bytes(*model_, resumed) == testing::evaluated_bytes(*model_, cold_copy))
        << "cut " << cut;
  }
}

TEST_P(History, SerialDecodingKeepsAtMostTwoGroupsWaiting) {
  IdSink sink;
  StartedGeneration started(*model_, {.prompt = ids(20), .max_tokens = 1100}, sink);
  const SequenceState& state = started.state;
  Generation& generation = started.generation;
  while (!generation.is_finished()) {
    generation.round();
    ASSERT_LE(state.history()->waiting(), 512);
    ASSERT_EQ(state.history()->transitions(), state.length() - 1);
  }
  EXPECT_GT(state.history()->evaluated(), 500) << "groups are evaluated as they fill, at any stride";
}

TEST_P(History, OneRejectionThenFiftyFullAcceptsCountsEachTokenOnce) {
  const auto prompt = ids(40);
  const auto truth = testing::run_oracle(*model_, prompt, 260).ids;
  int call = 0;
  testing::ScriptDrafter drafter([&](Position first, int depth) {
    std::vector<TokenId> out;
    for (int j = 0; j < depth; ++j) {
      const auto at = static_cast<std::size_t>(first - 40 + j);
      out.push_back(call == 0 && j == 1 ? (truth[at] + 1) % model_->config().vocabulary : truth[at]);
    }
    ++call;
    return out;
  });
  GenerationSetup setup{.prompt = prompt, .max_tokens = 250, .width = 5, .drafter = &drafter};
  IdSink sink;
  const auto outcome = testing::run_generation(*model_, setup, sink);
  EXPECT_EQ(outcome.ids, std::vector<TokenId>(truth.begin(), truth.begin() + 250));
  EXPECT_EQ(outcome.transitions, outcome.state_length - 1);
  EXPECT_GT(call, 45);
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, History, ::testing::Values("tiny-dense", "tiny-moe", "tiny-flash"), [](const auto& p) {
      return std::string(p.param == "tiny-dense" ? "Dense" : p.param == "tiny-moe" ? "Moe" : "Flash");
    });

}  // namespace
}  // namespace mererun
