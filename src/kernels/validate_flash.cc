// Checks of the ops that only Flash-Next uses.

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/validate.h"
#include "kernels/validate_views.h"

namespace mererun {

namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kI32 = DType::kI32;

void check_index(const ViewChecks& check, const KvLayerView& cache, int heads) {
  check.at_least("cache.index_dim", cache.index_dim, 1);
  check.at_least("heads", heads, 1);
  check.require(cache.index_codes % 2 == 0 && cache.index_scales % 4 == 0 && cache.index_pooled % 4 == 0,
                "cache index offsets", "offsets that align codes to 2 and floats to 4 bytes", "others");
}

/// The first and last position, after checking that they are consecutive and that their pages are held.
void check_rows(std::string_view op, const TensorView& positions, const KvLayerView& cache) {
  const std::int32_t* at = positions.row<std::int32_t>(0);
  const auto fail = [&](const std::string& expected, std::int64_t got) {
    fail_expected(ErrorCode::kInvalidArgument, fmt::format("{} positions", op), expected,
                  fmt::format("{}", got));
  };
  for (int t = 0; t < positions.cols; ++t) {
    if (at[t] < 0 || at[t] - at[0] != t) fail("consecutive positions from 0 on", at[t]);
    if (at[t] / kKvPagePositions >= cache.page_count)
      fail(fmt::format("positions below {} (the pages held)", cache.page_count * kKvPagePositions), at[t]);
  }
}

}  // namespace

void validate(const GroupedRmsNormParams& p) {
  const ViewChecks check("grouped_rms_norm");
  check.at_least("groups", p.groups, 1);
  check.at_least("x columns", p.x.cols, p.groups);
  check.equal("x columns mod groups", p.x.cols % p.groups, 0);
  check.shape("x", p.x, kF32, p.x.rows, p.x.cols);
  check.shape("weight", p.weight, kF32, 1, p.x.cols);
  check.shape("out", p.out, kF32, p.x.rows, p.x.cols);
  check.apart_or_same("out and x", p.out, p.x);
  check.apart("out and weight", p.out, p.weight);
}

void validate(const StreamSiluParams& p) {
  const ViewChecks check("stream_silu");
  check.shape("x", p.x, kF32, p.out.rows, p.out.cols);
  check.shape("out", p.out, kF32, p.out.rows, p.out.cols);
  check.apart_or_same("out and x", p.out, p.x);
}

void validate(const MixStreamsParams& p) {
  const ViewChecks check("mix_streams");
  check.shape("out", p.out, kF32, p.out.rows, p.out.cols);
  check.shape("x", p.x, kF32, p.out.rows, kStreams * p.out.cols);
  check.shape("gate", p.gate, kF32, p.out.rows, kStreams * p.out.cols);
  check.apart("out and x", p.out, p.x);
  check.apart("out and gate", p.out, p.gate);
}

void validate(const AddToStreamsParams& p) {
  const ViewChecks check("add_to_streams");
  check.shape("y", p.y, kF32, p.y.rows, p.y.cols);
  check.shape("inject", p.inject, kF32, p.y.rows, kStreams);
  check.shape("streams", p.streams, kF32, p.y.rows, kStreams * p.y.cols);
  check.apart("streams and y", p.streams, p.y);
  check.apart("streams and inject", p.streams, p.inject);
}

void validate(const NgramGateParams& p) {
  const ViewChecks check("ngram_gate");
  const int rows = p.value.rows;
  const int width = kStreams * p.value.cols;
  check.at_least("value columns", p.value.cols, 1);
  check.shape("value", p.value, kF32, rows, p.value.cols);
  check.shape("key", p.key, kF32, rows, width);
  check.shape("query", p.query, kF32, rows, width);
  check.shape("out", p.out, kF32, rows, width);
  check.apart("out and key", p.out, p.key);
  check.apart("out and query", p.out, p.query);
  check.apart("out and value", p.out, p.value);
}

void validate(const NgramConvParams& p) {
  const ViewChecks check("ngram_conv");
  const int rows = p.inputs.rows;
  const int width = p.inputs.cols;
  check.at_least("weight rows", p.weight.rows, 1);
  check.at_least("dilation", p.dilation, 1);
  check.shape("inputs", p.inputs, kF32, rows, width);
  check.shape("window", p.window, kF32, p.dilation * (p.weight.rows - 1), width);
  check.shape("weight", p.weight, kF32, p.weight.rows, width);
  check.shape("gated", p.gated, kF32, rows, width);
  check.shape("residual", p.residual, kF32, rows, width);
  check.apart("residual and inputs", p.residual, p.inputs);
  check.apart("residual and window", p.residual, p.window);
  check.apart("residual and gated", p.residual, p.gated);
}

void validate(const IndexPrepareParams& p) {
  const ViewChecks check("index_prepare");
  check_index(check, p.cache, p.heads);
  const int rows = p.qk.rows;
  const int dim = p.cache.index_dim;
  check.shape("qk", p.qk, kF32, rows, (p.heads + 1) * dim);
  check.shape("q_norm", p.q_norm, kF32, 1, dim);
  check.shape("k_norm", p.k_norm, kF32, 1, dim);
  check.shape("positions", p.positions, kI32, 1, rows);
  check.at_least("rope.rotary_dims", p.rope.rotary_dims, 0);
  check.equal("rope.rotary_dims mod 2", p.rope.rotary_dims % 2, 0);
  check.at_least("index_dim", dim, p.rope.rotary_dims);
  check.shape("rope.cos", p.rope.cos, kF32, p.rope.cos.rows, p.rope.rotary_dims / 2);
  check.shape("rope.sin", p.rope.sin, kF32, p.rope.cos.rows, p.rope.rotary_dims / 2);
  check.shape("q", p.q, kF32, rows, p.heads * dim);
  check.apart("q and qk", p.q, p.qk);
}

void validate(const SelectBlocksParams& p) {
  const ViewChecks check("select_blocks");
  check_index(check, p.cache, p.heads);
  check.at_least("blocks columns", p.blocks.cols, 1);
  check.shape("q", p.q, kF32, p.q.rows, p.heads * p.cache.index_dim);
  check.shape("positions", p.positions, kI32, 1, p.q.rows);
  check.shape("blocks", p.blocks, kI32, p.q.rows, p.blocks.cols);
}

void validate(const AttendBlocksParams& p) {
  const ViewChecks check("attend_blocks");
  const int rows = p.q.rows;
  const int dim = p.cache.head_dim;
  check.at_least("cache.kv_heads", p.cache.kv_heads, 1);
  check.at_least("cache.head_dim", dim, 1);
  check.at_least("heads", p.heads, 1);
  check.equal("heads mod cache.kv_heads", p.heads % p.cache.kv_heads, 0);
  check.at_least("blocks columns", p.blocks.cols, 1);
  check.shape("q", p.q, kF32, rows, p.heads * dim);
  check.shape("q_gate", p.q_gate, kF32, rows, 2 * p.heads * dim);
  check.shape("positions", p.positions, kI32, 1, rows);
  check.shape("blocks", p.blocks, kI32, rows, p.blocks.cols);
  check.shape("out", p.out, kF32, rows, p.heads * dim);
  check.apart("out and q", p.out, p.q);
  check.apart("out and q_gate", p.out, p.q_gate);
}

void validate_contents(const IndexPrepareParams& p) {
  check_rows("index_prepare", p.positions, p.cache);
  if (p.positions.cols == 0 || p.rope.rotary_dims == 0) return;
  const std::int32_t last = p.positions.row<std::int32_t>(0)[p.positions.cols - 1];
  if (last >= p.rope.cos.rows) {
    fail_expected(ErrorCode::kInvalidArgument, "index_prepare positions",
                  fmt::format("positions below {} (the rope table)", p.rope.cos.rows),
                  fmt::format("{}", last));
  }
}

void validate_contents(const SelectBlocksParams& p) {
  check_rows("select_blocks", p.positions, p.cache);
  if (p.positions.cols == 0) return;
  const int complete = (p.positions.row<std::int32_t>(0)[0] + 1) / kIndexBlockPositions;
  if (complete < p.blocks.cols) {
    fail_expected(ErrorCode::kInvalidArgument, "select_blocks positions",
                  fmt::format("at least {} complete blocks", p.blocks.cols), fmt::format("{}", complete));
  }
}

void validate_contents(const AttendBlocksParams& p) {
  check_rows("attend_blocks", p.positions, p.cache);
  for (int t = 0; t < p.blocks.rows; ++t) {
    const std::int32_t* row = p.blocks.row<std::int32_t>(t);
    const int complete = (p.positions.row<std::int32_t>(0)[t] + 1) / kIndexBlockPositions;
    for (int i = 0; i < p.blocks.cols; ++i) {
      if (row[i] >= 0 && row[i] < complete && (i == 0 || row[i] > row[i - 1])) continue;
      fail_expected(ErrorCode::kInvalidArgument, "attend_blocks blocks",
                    fmt::format("ascending blocks below {}", complete), fmt::format("{}", row[i]));
    }
  }
}

}  // namespace mererun
