#include <gtest/gtest.h>

#include "tests/support/models.h"

namespace mererun {
namespace {

using testing::load_model;
using testing::random_texts;
using testing::state_bytes;
using testing::to_host;

/// Serial truth: logits row and state bytes after each position.
struct SerialRun {
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<std::byte>> states;
};

void prefill(Model& model, SequenceState& state, std::span<const TokenId> ids) {
  while (state.length() < static_cast<int>(ids.size())) {
    const int first = state.length();
    const int rows = std::min<int>(model.limits().max_rows, static_cast<int>(ids.size()) - first);
    const PassSegment segment{&state, nullptr, 0, rows};
    model.decoder().forward(ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)),
                            {&segment, 1});
  }
}

SerialRun run_serially(Model& model, const SequenceState& start, std::span<const TokenId> ids) {
  SerialRun run;
  SequenceState state = start.fork();
  for (const TokenId id : ids) {
    const PassSegment segment{&state, nullptr, 0, 1};
    const TensorView hidden = model.decoder().forward({&id, 1}, {&segment, 1});
    run.logits.push_back(to_host(model.ops(), model.decoder().logits(hidden)));
    run.states.push_back(state_bytes(state));
  }
  return run;
}

struct Case {
  std::string model;
  int prompt;
};

class ModelWidths : public ::testing::TestWithParam<Case> {};

TEST_P(ModelWidths, EveryRowAndEveryAcceptedPrefixEqualsSerialDecoding) {
  const auto model = load_model(testing::golden_dir() / GetParam().model / "mlx", "cpu");
  const int vocabulary = model->config().vocabulary;
  SequenceState start = model->new_sequence();
  prefill(*model, start, random_texts(GetParam().prompt, model->config(), 21));
  const std::vector<std::byte> start_bytes = state_bytes(start);
  const std::vector<TokenId> rows = random_texts(32, model->config(), 22);
  const SerialRun serial = run_serially(*model, start, rows);

  VerifyLog log = model->new_verify_log(32);
  // Far from the start a state is large: fewer widths, and the ends and middle of the accepted lengths.
  const bool is_far = GetParam().prompt > 2000;
  for (const int width : is_far ? std::vector{2, 9, 32} : std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32}) {
    for (int accepted = 0; accepted <= width; accepted += is_far ? std::max(1, width / 2) : 1) {
      SequenceState state = start.fork();
      {
        VerifyTransaction transaction(state, log, width);
        const PassSegment segment{&state, &transaction, 0, width};
        const TensorView hidden =
            model->decoder().forward(std::span(rows).first(static_cast<std::size_t>(width)), {&segment, 1});
        const std::vector<float> hidden_host = to_host(model->ops(), hidden);
        const std::vector<float> logits = to_host(model->ops(), model->decoder().logits(hidden));
        for (int r = 0; r < width; ++r) {
          const auto* row =
              logits.data() + static_cast<std::size_t>(r) * static_cast<std::size_t>(vocabulary);
          ASSERT_EQ(testing::hash_bits({row, static_cast<std::size_t>(vocabulary)}),
                    testing::hash_bits(serial.logits[static_cast<std::size_t>(r)]))
              << "width " << width << " row " << r;
        }
        if (accepted > 0) transaction.commit(accepted, hidden);
      }
      const auto& expected =
          accepted == 0 ? start_bytes : serial.states[static_cast<std::size_t>(accepted) - 1];
      ASSERT_EQ(state.length(), GetParam().prompt + accepted);
      ASSERT_TRUE(state_bytes(state) == expected) << "width " << width << " accepted " << accepted;
    }
  }
  EXPECT_TRUE(state_bytes(start) == start_bytes) << "forks leave their source as it was";
}

TEST(VerifyTransactionDeathTest, RollsBackOnce) {
  const auto model = load_model(testing::golden_dir() / "tiny-dense" / "mlx", "cpu");
  VerifyLog log = model->new_verify_log(2);
  SequenceState state = model->new_sequence();
  VerifyTransaction transaction(state, log, 2);
  const PassSegment segment{&state, &transaction, 0, 2};
  const std::vector<TokenId> rows = {3, 4};
  const TensorView hidden = model->decoder().forward(rows, {&segment, 1});
  transaction.commit(1, hidden);
  EXPECT_DEATH(transaction.commit(1, hidden), "commits once");
}

INSTANTIATE_TEST_SUITE_P(Tiny, ModelWidths,
                         ::testing::Values(Case{"tiny-dense", 1}, Case{"tiny-dense", 60},
                                           Case{"tiny-dense", 250}, Case{"tiny-dense", 1020},
                                           Case{"tiny-moe", 1}, Case{"tiny-moe", 60}, Case{"tiny-moe", 250},
                                           Case{"tiny-moe", 1020}, Case{"tiny-dense", 4090},
                                           Case{"tiny-moe", 8190}, Case{"tiny-flash", 1},
                                           // Sparse from position 67 on; blocks complete every fourth row.
                                           Case{"tiny-flash", 50}, Case{"tiny-flash", 66},
                                           Case{"tiny-flash", 250}, Case{"tiny-flash", 1021}),
                         [](const auto& p) {
                           std::string name = p.param.model + std::to_string(p.param.prompt);
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

}  // namespace
}  // namespace mererun
