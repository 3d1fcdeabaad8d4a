// A device that fails in the middle of a round: the state is as before the round and the same tokens follow,
// or the state refuses further use. It is never wrong.

#include <gtest/gtest.h>

#include <fstream>

#include "decode/mtp_drafter.h"
#include "model/flash_host_weights.h"
#include "tests/support/faulty_ops.h"
#include "tests/support/generation.h"
#include "tests/support/temp_folder.h"

namespace mererun {
namespace {

using testing::FaultyOps;
using testing::GenerationSetup;
using testing::IdSink;
using testing::StartedGeneration;

constexpr int kTokens = 40;

/// Rounds of four drafts.
GenerationSetup drafting(MtpDrafter& drafter, const std::vector<TokenId>& prompt) {
  return {.prompt = prompt, .max_tokens = kTokens, .width = 5, .drafter = &drafter};
}

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
    IdSink sink;
    StartedGeneration started(*model_, drafting(drafter, prompt_), sink);
    SequenceState& state = started.state;
    Generation& generation = started.generation;
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

/// Flash-Next with its table in a file of its own, which breaks and is mended while the model runs.
class TableFaults : public ::testing::TestWithParam<int> {
 protected:
  TableFaults() {
    mend();
    HostWeights host = load_host_weights(folder_);
    HostNgramTable& table = host.layers[1].flash->ngram->table;
    table.options.cache_rows = GetParam();
    for (TableShard& shard : table.shards)
      for (TableArray& array : shard.arrays) array.path = file_;
    model_ = std::make_unique<Model>(testing::make_ops("cpu"), std::move(host), ModelLimits{});
    prompt_ = testing::random_ids(70, model_->config().vocabulary, 4);
    const auto sound = testing::load_model(folder_, "cpu");
    expected_ = testing::run_oracle(*sound, prompt_, kTokens).ids;
  }
  void shorten(std::uintmax_t left = 100) const { std::filesystem::resize_file(file_, left); }
  /// The same file again, not another one under its name.
  void mend() const {
    std::ofstream(file_, std::ios::binary) << std::ifstream(folder_ / "model.safetensors").rdbuf();
  }

  testing::TempFolder temp_;
  std::filesystem::path folder_ = testing::golden_dir() / "tiny-flash" / "mlx";
  std::filesystem::path file_ = temp_.path() / "table.bin";
  std::unique_ptr<Model> model_;
  std::vector<TokenId> prompt_, expected_;
};

void expect_io_error(const std::function<void()>& act) {
  try {
    act();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
  }
}

TEST_P(TableFaults, ABrokenFileCostsTheRoundAndAMendedOneGoesOn) {
  MtpDrafter drafter(*model_);
  // Later ones find the rows that they need in the cache: the same tokens come again.
  for (int rounds = 5; rounds >= (GetParam() > 1 ? 5 : 0); --rounds) {
    IdSink sink;
    StartedGeneration started(*model_, drafting(drafter, prompt_), sink);
    SequenceState& state = started.state;
    Generation& generation = started.generation;
    for (int i = 0; i < rounds; ++i) generation.round();
    const int length = state.length();
    const auto tokens = generation.tokens();
    shorten();
    expect_io_error([&] { generation.round(); });
    EXPECT_TRUE(state.is_valid());
    EXPECT_EQ(state.length(), length);
    EXPECT_EQ(generation.tokens(), tokens);
    mend();
    generation.run();
    EXPECT_EQ(generation.tokens(), expected_) << rounds << " rounds before";
  }
}

TEST_P(TableFaults, DraftsNeedNoRowThatSerialDecodingDoesNot) {
  MtpDrafter drafter(*model_);
  const GenerationSetup serial{.prompt = prompt_, .max_tokens = kTokens};
  // The whole text, or what came before the first error, with so many bytes of the file left.
  const auto generate = [&](const GenerationSetup& setup, std::uintmax_t left) {
    IdSink sink;
    StartedGeneration started(*model_, setup, sink);
    shorten(left);
    try {
      started.generation.run();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
    }
    mend();
    return started.generation.tokens();
  };
  // The shortest file that serial decoding gets through with: rows behind its end are wanted by drafts alone.
  std::uintmax_t fails = 100, serves = std::filesystem::file_size(file_);
  while (serves - fails > 1) {
    const std::uintmax_t middle = fails + (serves - fails) / 2;
    (generate(serial, middle) == expected_ ? serves : fails) = middle;
  }
  EXPECT_EQ(generate(drafting(drafter, prompt_), serves), expected_) << serves << " bytes";
  EXPECT_EQ(generate(drafting(drafter, prompt_), fails), generate(serial, fails)) << fails << " bytes";
}

TEST_P(TableFaults, APrefillThatFailsRefusesItsStateAlone) {
  shorten();
  SequenceState state = model_->new_sequence();
  expect_io_error([&] { Prefill(*model_, state, prompt_, {.chunk = 32}).run(); });
  EXPECT_FALSE(state.is_valid());
  mend();
  EXPECT_EQ(testing::run_oracle(*model_, prompt_, kTokens).ids, expected_);
}

INSTANTIATE_TEST_SUITE_P(CacheRows, TableFaults, ::testing::Values(0, 32768));

INSTANTIATE_TEST_SUITE_P(
    Tiny, Faults, ::testing::Values("tiny-dense", "tiny-moe", "tiny-flash"), [](const auto& p) {
      return std::string(p.param == "tiny-dense" ? "Dense" : p.param == "tiny-moe" ? "Moe" : "Flash");
    });

}  // namespace
}  // namespace mererun
