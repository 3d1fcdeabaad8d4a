// Checks of the ops that only Flash-Next uses.

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
  check_rope(check, p.rope, "index_dim", dim);
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
  check_cache(check, p.cache, p.heads);
  check.at_least("blocks columns", p.blocks.cols, 1);
  check.shape("q", p.q, kF32, rows, p.heads * dim);
  check.shape("q_gate", p.q_gate, kF32, rows, 2 * p.heads * dim);
  check.shape("positions", p.positions, kI32, 1, rows);
  check.shape("blocks", p.blocks, kI32, rows, p.blocks.cols);
  check.shape("out", p.out, kF32, rows, p.heads * dim);
  check.apart("out and q", p.out, p.q);
  check.apart("out and q_gate", p.out, p.q_gate);
}

}  // namespace mererun
