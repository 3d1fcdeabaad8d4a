// The model against an independent fp32 implementation (tests/golden/README.md): logits, residuals, router
// choices, MTP cells and drafts of the tiny checkpoints. Bounds: 3e-4 relative per prompt and 1e-3 at any
// position; each hidden rounding that was planted on purpose broke them.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/golden/golden_file.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

using testing::GoldenFile;
using testing::relative_error;

constexpr double kPromptBound = 3e-4;
constexpr double kPositionBound = 1e-3;
constexpr double kRouterGap = 3e-3;  // below it another choice of experts is no defect
constexpr double kBlockGap = 3e-3;   // the same for index scores of blocks

struct Case {
  std::string name;
  std::filesystem::path checkpoint;
  std::filesystem::path vectors;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string name : {"tiny-dense", "tiny-moe", "tiny-flash"}) {
    out.push_back({name + "-mlx", testing::golden_dir() / name / "mlx",
                   testing::golden_dir() / "vectors" / (name + ".mlx.safetensors")});
    if (const auto full = testing::full_golden_dir()) {
      for (const std::string layout : {"mlx", "hf"}) {
        out.push_back({name + "-" + layout + "-full", *full / name / layout,
                       *full / (name + "." + layout + ".safetensors")});
      }
    }
  }
  return out;
}

class TinyGolden : public ::testing::TestWithParam<Case> {
 protected:
  TinyGolden() : golden_(GetParam().vectors), model_(testing::load_model(GetParam().checkpoint, "cpu")) {
    hooks_.forced_experts = [this](int layer, int rows) { return forced(layer, rows); };
    hooks_.residual = [this](int layer, TensorView residual) { check_residual(layer, residual); };
    hooks_.selected = [this](int layer, int first, TensorView blocks) { force_blocks(layer, first, blocks); };
  }

  bool is_flash() const { return model_->config().flash.has_value(); }
  std::size_t residual_dim() const { return static_cast<std::size_t>(model_->config().residual_dim()); }

  /// Runs the prompt in one pass; returns the trunk's hidden rows and logits.
  void run(const std::string& prompt) {
    prompt_ = prompt;
    ids_ = golden_.ints(prompt + ".ids");
    positions_ = golden_.ints(prompt + ".positions");
    model_->decoder().set_hooks(&hooks_);
    SequenceState state = model_->new_sequence();
    const PassSegment segment{&state, nullptr, 0, static_cast<int>(ids_.size())};
    const TensorView view = model_->decoder().forward(ids_, {&segment, 1});
    hidden_ = testing::to_host(model_->ops(), view);
    for (int r = 0; r < view.rows; r += 32) {
      const int n = std::min(32, view.rows - r);
      const auto part = testing::to_host(model_->ops(), model_->decoder().logits(view.row_range(r, n)));
      logits_.insert(logits_.end(), part.begin(), part.end());
    }
    model_->decoder().set_hooks(nullptr);
  }

  std::span<const float> logits_row(int position) const {
    const auto v = static_cast<std::size_t>(model_->config().vocabulary);
    return std::span(logits_).subspan(static_cast<std::size_t>(position) * v, v);
  }

  /// The reference's experts of a layer, ascending, as the router op wants them.
  TensorView forced(int layer, int rows) {
    const bool head = layer == model_->config().layers;
    const int top = model_->config().experts_per_token;
    const auto all = golden_.ints(prompt_ + (head ? ".mtp_router_ids" : ".router_ids"));
    const std::size_t begin =
        head ? 0 : static_cast<std::size_t>(layer) * ids_.size() * static_cast<std::size_t>(top);
    forced_.assign(all.begin() + static_cast<std::ptrdiff_t>(begin),
                   all.begin() + static_cast<std::ptrdiff_t>(begin) + rows * top);
    for (int r = 0; r < rows; ++r) std::sort(forced_.begin() + r * top, forced_.begin() + (r + 1) * top);
    return make_view(forced_.data(), DType::kI32, rows, top);
  }

  /// Whether the reference's row attends to a complete block.
  std::vector<std::uint8_t> golden_blocks(int layer) const {
    const bool head = layer == model_->config().layers;
    return golden_.bytes(
        prompt_ + (head ? std::string(".mtp_qsa_blocks") : ".qsa_blocks.layer" + std::to_string(layer)));
  }

  /// Overwrites the blocks of sparse rows by the reference's, as forced() does with experts.
  void force_blocks(int layer, int first, TensorView blocks) {
    const auto golden = golden_blocks(layer);
    const bool head = layer == model_->config().layers;
    const std::size_t width = (ids_.size() - (head ? 1 : 0)) / kIndexBlockPositions;
    for (int r = 0; r < blocks.rows; ++r) {
      const std::uint8_t* row = golden.data() + static_cast<std::size_t>(first + r) * width;
      int k = 0;
      for (std::size_t b = 0; b < width; ++b)
        if (row[b] != 0 && k < blocks.cols) blocks.row<std::int32_t>(r)[k++] = static_cast<std::int32_t>(b);
      EXPECT_EQ(k, blocks.cols);
    }
  }

  void check_residual(int layer, TensorView residual) {
    const auto expected = golden_.floats(prompt_ + ".hidden");
    const auto h = residual_dim();
    const auto rows = testing::to_host(model_->ops(), residual);
    for (std::size_t i = 0; i < positions_.size(); ++i) {
      const auto at = static_cast<std::size_t>(positions_[i]) * h;
      const auto want = (static_cast<std::size_t>(layer + 1) * positions_.size() + i) * h;
      EXPECT_LT(relative_error(std::span(rows).subspan(at, h), std::span(expected).subspan(want, h)),
                kPositionBound)
          << prompt_ << " residual after layer " << layer << " at position " << positions_[i];
    }
    ++residual_layers_;
  }

  GoldenFile golden_;
  std::unique_ptr<Model> model_;
  DecoderHooks hooks_;
  std::string prompt_;
  std::vector<TokenId> ids_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> forced_;
  std::vector<float> hidden_, logits_;
  int residual_layers_ = 0;
};

TEST_P(TinyGolden, ResidualsAndLogits) {
  for (const std::string prompt : {"a", "b"}) {
    logits_.clear();
    residual_layers_ = 0;
    run(prompt);
    EXPECT_EQ(residual_layers_, model_->config().layers + 1);
    const bool whole = golden_.has(prompt + ".logits");
    const auto expected = golden_.floats(prompt + (whole ? ".logits" : ".logits_at"));
    const auto v = static_cast<std::size_t>(model_->config().vocabulary);
    std::vector<float> got;
    for (std::size_t i = 0; i < expected.size() / v; ++i) {
      const int position = whole ? static_cast<int>(i) : positions_[i];
      const auto row = logits_row(position);
      got.insert(got.end(), row.begin(), row.end());
      EXPECT_LT(relative_error(row, std::span(expected).subspan(i * v, v)), kPositionBound)
          << prompt << " logits at position " << position;
    }
    const double error = relative_error(got, expected);
    RecordProperty("relative_error_" + prompt, std::to_string(error));
    EXPECT_LT(error, kPromptBound) << prompt;
    std::printf("%s %s: relative logit error %.3g\n", GetParam().name.c_str(), prompt.c_str(), error);
  }
}

/// The k largest of a row, ascending by id: what the router op must choose.
std::vector<std::int32_t> top_ids(std::span<const float> logits, int k) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  ids.resize(static_cast<std::size_t>(k));
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST_P(TinyGolden, RouterChoosesTheSameExperts) {
  if (!model_->config().is_moe()) return;
  const int top = model_->config().experts_per_token;
  for (const std::string prompt : {"a", "b"}) {
    const auto expected = golden_.ints(prompt + ".router_ids");
    const auto gaps = golden_.floats(prompt + ".router_gap");
    int compared = 0;
    // The pass takes the reference's experts, so that a legitimate other choice can't spread; the choice
    // itself is read from the router's logits.
    hooks_.routed = [&](int layer, TensorView ids, TensorView) {
      const auto logits =
          testing::to_host(model_->ops(), model_->activations().feed_forward(ids.rows).router);
      const auto e = static_cast<std::size_t>(model_->config().experts);
      for (int r = 0; r < ids.rows; ++r) {
        const auto at = static_cast<std::size_t>(layer * ids.rows + r);
        if (gaps[at] <= kRouterGap) continue;
        const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(at) * top;
        std::vector<std::int32_t> want(begin, begin + top);
        std::sort(want.begin(), want.end());
        EXPECT_EQ(top_ids(std::span(logits).subspan(static_cast<std::size_t>(r) * e, e), top), want)
            << prompt << " layer " << layer << " position " << r << " gap " << gaps[at];
        ++compared;
      }
    };
    hooks_.residual = nullptr;
    logits_.clear();
    run(prompt);
    const auto total = static_cast<int>(ids_.size()) * model_->config().layers;
    EXPECT_GT(compared, total * 9 / 10) << "nearly every choice is clear";
  }
}

TEST_P(TinyGolden, TheIndexerSelectsTheSameBlocks) {
  if (!is_flash()) return;
  const int budget = model_->config().flash->budget_blocks();
  for (const std::string prompt : {"a", "b"}) {
    int compared = 0, sparse = 0;
    hooks_.selected = [&](int layer, int first, TensorView blocks) {
      EXPECT_EQ(first, kIndexBlockPositions * (budget + 1) - 1) << "rows before it see every block";
      const auto golden = golden_blocks(layer);
      const auto gaps = golden_.floats(prompt + ".qsa_gap.layer" + std::to_string(layer));
      const std::size_t width = ids_.size() / kIndexBlockPositions;
      for (int r = 0; r < blocks.rows; ++r) {
        ++sparse;
        if (gaps[static_cast<std::size_t>(first + r)] <= kBlockGap) continue;
        std::vector<std::int32_t> want;
        const std::uint8_t* row = golden.data() + static_cast<std::size_t>(first + r) * width;
        for (std::size_t b = 0; b < width; ++b)
          if (row[b] != 0) want.push_back(static_cast<std::int32_t>(b));
        const auto* got = blocks.row<const std::int32_t>(r);
        EXPECT_EQ(std::vector<std::int32_t>(got, got + blocks.cols), want)
            << prompt << " layer " << layer << " position " << first + r;
        ++compared;
      }
      force_blocks(layer, first, blocks);
    };
    hooks_.residual = nullptr;
    logits_.clear();
    run(prompt);
    EXPECT_GE(sparse, 2 * (prompt == "a" ? 233 : 3));
    EXPECT_GT(compared, sparse * 8 / 10) << "nearly every choice is clear";
  }
}

TEST_P(TinyGolden, NgramRowsAreTheReferences) {
  if (!is_flash()) return;
  for (const std::string prompt : {"a", "b"}) {
    std::vector<std::int64_t> rows;
    hooks_.table_rows = [&](std::span<const std::int64_t> of_pass) {
      rows.assign(of_pass.begin(), of_pass.end());
    };
    hooks_.residual = nullptr;
    logits_.clear();
    run(prompt);
    EXPECT_EQ(rows, golden_.longs(prompt + ".ple_rows")) << prompt;
  }
}

TEST_P(TinyGolden, MtpCellsAndChainedDrafts) {
  for (const std::string prompt : {"a", "b"}) {
    logits_.clear();
    hooks_.residual = nullptr;
    run(prompt);
    const int n = static_cast<int>(ids_.size());
    const auto h = residual_dim();
    Buffer rows = model_->ops().allocate(hidden_.size() * sizeof(float));
    model_->ops().upload(rows.data(), hidden_.data(), hidden_.size() * sizeof(float));
    MtpHead& head = *model_->head();
    head.set_hooks(&hooks_);
    KvCache cache(model_->pools().head);
    const TensorView hidden = make_view(rows.data(), DType::kF32, n - 1, static_cast<int>(h));
    TensorView out = head.forward(hidden, std::span(ids_).subspan(1), 0, 0, cache);
    cache.set_length(n - 1);

    const auto expected = golden_.floats(prompt + ".mtp_hidden");
    const auto got = testing::to_host(model_->ops(), out);
    for (std::size_t i = 0; i + 1 < positions_.size(); ++i) {
      EXPECT_LT(relative_error(std::span(got).subspan(static_cast<std::size_t>(positions_[i]) * h, h),
                               std::span(expected).subspan(i * h, h)),
                kPositionBound)
          << prompt << " MTP cell " << positions_[i];
    }
    head.set_hooks(nullptr);  // the chained cells' experts are the head's own choice

    const auto draft_ids = golden_.ints(prompt + ".draft_ids");
    const auto draft_logits = golden_.floats(prompt + ".draft_logits");
    const auto v = static_cast<std::size_t>(model_->config().vocabulary);
    out = out.row_range(n - 2, 1);
    for (std::size_t j = 0; j < draft_ids.size(); ++j) {
      const TensorView logits = head.draft_logits(out);
      const auto scores = testing::to_host(model_->ops(), logits);
      EXPECT_LT(relative_error(scores, std::span(draft_logits).subspan(j * v, v)), kPositionBound)
          << prompt << " draft step " << j;
      EXPECT_EQ(head.argmax_tokens(logits).front(), draft_ids[j]) << prompt << " draft step " << j;
      const TokenId id = draft_ids[j];
      out = head.forward(out, {&id, 1}, n - 1 + static_cast<int>(j), 0, cache);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, TinyGolden, ::testing::ValuesIn(cases()), [](const auto& p) {
  std::string name = p.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace mererun
