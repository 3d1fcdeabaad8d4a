#include <fmt/format.h>

#include "base/error.h"
#include "kernels/validate.h"

namespace mererun {

namespace {

[[noreturn]] void fail(std::string_view where, const std::string& expected, std::int64_t got) {
  fail_expected(ErrorCode::kInvalidArgument, where, expected, fmt::format("{}", got));
}

/// Positions p, p + 1, ... inside `limit`, with every page they and the positions before them need.
void check_positions(std::string_view where, const TensorView& positions, const KvLayerView& cache) {
  const int rows = positions.cols;
  if (rows == 0) return;
  const std::int32_t* at = positions.row<std::int32_t>(0);
  if (at[0] < 0) fail(where, "a position of at least 0", at[0]);
  for (int t = 1; t < rows; ++t) {
    if (at[t] - at[0] != t) fail(where, fmt::format("consecutive positions: {}", at[0] + t), at[t]);
  }
  const std::int64_t end = static_cast<std::int64_t>(at[0]) + rows;
  const std::int64_t held = static_cast<std::int64_t>(cache.page_count) * kKvPagePositions;
  if (end > held) fail(where, fmt::format("positions below {} (the pages held)", held), end - 1);
  if (cache.pages == nullptr) fail_expected(ErrorCode::kInvalidArgument, where, "pages", "none");
  for (std::int64_t page = 0; page * kKvPagePositions < end; ++page) {
    if (cache.pages[page] == nullptr) fail(where, "a page in memory", page);
  }
}

/// The last position has a row in the tables. The positions have been checked.
void check_rotations(std::string_view where, const TensorView& positions, const RopeView& rope) {
  if (positions.cols == 0 || rope.rotary_dims == 0) return;
  const std::int32_t last = positions.row<std::int32_t>(0)[positions.cols - 1];
  if (last >= rope.cos.rows) {
    fail(where, fmt::format("positions below {} (the rope table)", rope.cos.rows), last);
  }
}

/// Ascending expert ids inside [0, experts), row by row.
void check_expert_ids(std::string_view where, const TensorView& ids, int experts) {
  for (int t = 0; t < ids.rows; ++t) {
    const std::int32_t* row = ids.row<std::int32_t>(t);
    for (int i = 0; i < ids.cols; ++i) {
      if (row[i] < 0 || row[i] >= experts) fail(where, fmt::format("an id below {}", experts), row[i]);
      if (i > 0 && row[i] <= row[i - 1]) fail(where, fmt::format("ids above {}", row[i - 1]), row[i]);
    }
  }
}

}  // namespace

void validate_contents(const EmbedRowsParams& p) {
  const std::int32_t* ids = p.ids.row<std::int32_t>(0);
  for (int t = 0; t < p.out.rows; ++t) {
    if (ids[t] < 0 || ids[t] >= p.weight->out()) {
      fail("embed_rows ids", fmt::format("an id below {}", p.weight->out()), ids[t]);
    }
  }
}

void validate_contents(const AttentionPrepareParams& p) {
  check_positions("attention_prepare positions", p.positions, p.cache);
  check_rotations("attention_prepare positions", p.positions, p.rope);
}

void validate_contents(const AttendParams& p) { check_positions("attend positions", p.positions, p.cache); }

void validate_contents(const RouteExpertsParams& p) {
  if (!p.forced_ids.empty()) check_expert_ids("route_experts forced_ids", p.forced_ids, p.logits.cols);
}

void validate_contents(const ExpertMlpParams& p) {
  check_expert_ids("expert_mlp ids", p.ids, p.gate->experts());
}

void validate_contents(const IndexPrepareParams& p) {
  check_positions("index_prepare positions", p.positions, p.cache);
  check_rotations("index_prepare positions", p.positions, p.rope);
}

void validate_contents(const SelectBlocksParams& p) {
  check_positions("select_blocks positions", p.positions, p.cache);
  if (p.positions.cols == 0) return;
  const int complete = (p.positions.row<std::int32_t>(0)[0] + 1) / kIndexBlockPositions;
  if (complete < p.blocks.cols) {
    fail("select_blocks positions", fmt::format("at least {} complete blocks", p.blocks.cols), complete);
  }
}

void validate_contents(const AttendBlocksParams& p) {
  check_positions("attend_blocks positions", p.positions, p.cache);
  for (int t = 0; t < p.blocks.rows; ++t) {
    const std::int32_t* row = p.blocks.row<std::int32_t>(t);
    const int complete = (p.positions.row<std::int32_t>(0)[t] + 1) / kIndexBlockPositions;
    for (int i = 0; i < p.blocks.cols; ++i) {
      if (row[i] >= 0 && row[i] < complete && (i == 0 || row[i] > row[i - 1])) continue;
      fail("attend_blocks blocks", fmt::format("ascending blocks below {}", complete), row[i]);
    }
  }
}

}  // namespace mererun
