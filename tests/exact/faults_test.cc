// A device that fails in the middle of a round: the state is as before the round and the same tokens follow,
// or the state refuses further use. It is never wrong.

#include <gtest/gtest.h>

#include "decode/mtp_drafter.h"
#include "tests/support/faulty_ops.h"
#include "tests/support/generation.h"

namespace mererun {
namespace {

using testing::FaultyOps;
using testing::IdSink;

constexpr int kTokens = 40;

class Faults : public ::testing::TestWithParam<std::string> {
 protected:
  Faults() {
    auto ops = std::make_unique<FaultyOps>(testing::make_ops("cpu:1"));
    faulty_ = ops.get();
    model_ = Model::load(testing::golden_dir() / GetParam() / "mlx", {}, std::move(ops), {});
    prompt_ = testing::random_ids(70, model_->config().vocabulary, 4);
    expected_ = testing::run_oracle(*model_, prompt_, kTokens).ids;
  }

  FaultyOps* faulty_;
  std::unique_ptr<Model> model_;
  std::vector<TokenId> prompt_, expected_;
};

TEST_P(Faults, ARoundThatFailsLeavesTheStateOrRefusesItsUse) {
  MtpDrafter drafter(*model_);
  int intact = 0, refused = 0;
  for (int n = 1;; n += 3) {
    SequenceState state = model_->new_sequence();
    Prefill(*model_, state, prompt_, {}).run();
    Sampler sampler({}, prompt_);
    IdSink sink;
    sink.max_tokens = kTokens;
    VerifyLog log = model_->new_verify_log(5);
    DepthPolicy policy({.max_depth = 4, .cost = FullDepth{}});
    Generation generation({.model = *model_,
                           .state = state,
                           .sampler = sampler,
                           .sink = sink,
                           .log = &log,
                           .drafter = &drafter,
                           .policy = &policy},
                          {.max_tokens = kTokens, .context_limit = 4096});
    generation.begin();
    generation.round();
    const int length = state.length();
    const int transitions = state.history()->transitions();
    const auto tokens = generation.tokens();
    const std::vector<float> recurrent = testing::to_host(model_->ops(), state.recurrent().delta(0));

    faulty_->arm(n);
    bool failed = false;
    try {
      generation.round();
    } catch (const Error& error) {
      failed = true;
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
    }
    faulty_->arm(0);
    if (!failed) break;  // the round has fewer than n calls
    if (!state.is_valid()) {
      ++refused;  // the commit itself failed: layers disagree
      EXPECT_THROW(generation.round(), Error) << "call " << n;
      continue;
    }
    ++intact;
    EXPECT_EQ(state.length(), length) << "call " << n;
    EXPECT_EQ(generation.tokens(), tokens) << "call " << n;
    EXPECT_GE(state.history()->transitions(), transitions);
    EXPECT_LE(state.history()->transitions(), transitions + 1)
        << "at most the pending token's own transition";
    EXPECT_EQ(testing::hash_bits(testing::to_host(model_->ops(), state.recurrent().delta(0))),
              testing::hash_bits(recurrent));
    generation.run();
    EXPECT_EQ(generation.tokens(), expected_) << "call " << n;
    EXPECT_EQ(state.history()->transitions(), state.length() - 1);
  }
  EXPECT_GT(intact, 20);
  EXPECT_GT(refused, 0);
}

TEST_P(Faults, APrefillThatFailsRefusesItsState) {
  for (const int n : {1, 9, 30}) {
    SequenceState state = model_->new_sequence();
    faulty_->arm(n);
    EXPECT_THROW(Prefill(*model_, state, prompt_, {.chunk = 32}).run(), Error);
    faulty_->arm(0);
    EXPECT_FALSE(state.is_valid());
    EXPECT_THROW((void)state.fork(), Error) << "no snapshot of it either";
  }
  SequenceState fresh = model_->new_sequence();
  Prefill(*model_, fresh, prompt_, {}).run();
  EXPECT_EQ(fresh.length(), 70) << "other sequences go on";
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, Faults, ::testing::Values("tiny-dense", "tiny-moe", "tiny-flash"), [](const auto& p) {
      return std::string(p.param == "tiny-dense" ? "Dense" : p.param == "tiny-moe" ? "Moe" : "Flash");
    });

}  // namespace
}  // namespace mererun
