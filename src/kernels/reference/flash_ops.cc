// The ops that only Flash-Next uses, on the reference backend.

#include "kernels/reference/reference_ops.h"
#include "kernels/validate.h"

namespace mererun::reference {

void ReferenceOps::grouped_rms_norm(const GroupedRmsNormParams& p) {
  validate(p);
  loops_.grouped_rms_norm(p);
}

void ReferenceOps::stream_silu(const StreamSiluParams& p) {
  validate(p);
  loops_.stream_silu(p);
}

void ReferenceOps::mix_streams(const MixStreamsParams& p) {
  validate(p);
  loops_.mix_streams(p);
}

void ReferenceOps::add_to_streams(const AddToStreamsParams& p) {
  validate(p);
  loops_.add_to_streams(p);
}

void ReferenceOps::ngram_gate(const NgramGateParams& p) {
  validate(p);
  loops_.ngram_gate(p);
}

void ReferenceOps::ngram_conv(const NgramConvParams& p) {
  validate(p);
  loops_.ngram_conv(p);
}

void ReferenceOps::index_prepare(const IndexPrepareParams& p) {
  validate(p);
  validate_contents(p);
  loops_.index_prepare(p, scratch(2 * static_cast<std::size_t>(p.cache.index_dim)));
}

void ReferenceOps::select_blocks(const SelectBlocksParams& p) {
  validate(p);
  validate_contents(p);
  if (p.q.rows == 0) return;
  const int last = p.positions.row<std::int32_t>(0)[p.q.rows - 1];
  loops_.select_blocks(p, scratch(static_cast<std::size_t>((last + 1) / kIndexBlockPositions)));
}

void ReferenceOps::attend_blocks(const AttendBlocksParams& p) {
  validate(p);
  validate_contents(p);
  const int dim = p.cache.head_dim;
  const int group = p.heads / p.cache.kv_heads;
  for (int t = 0; t < p.q.rows; ++t) {
    const std::span<const std::int32_t> blocks(p.blocks.row<const std::int32_t>(t),
                                               static_cast<std::size_t>(p.blocks.cols));
    for (int h = 0; h < p.cache.kv_heads; ++h) {
      const int listed = gathered_.gather(p.cache, h, blocks, p.positions.row<std::int32_t>(0)[t]);
      std::int32_t last = listed - 1;
      const auto heads_of = [&](const TensorView& view, int per_head) {
        return view.row_range(t, 1).col_range(h * group * per_head, group * per_head);
      };
      loops_.attend({.q = heads_of(p.q, dim),
                     .q_gate = heads_of(p.q_gate, 2 * dim),
                     .positions = make_view(&last, DType::kI32, 1, 1),
                     .cache = gathered_.view(),
                     .heads = group,
                     .scale_log2e = p.scale_log2e,
                     .out = heads_of(p.out, dim)},
                    scratch(attend_values(dim)));
    }
  }
}

}  // namespace mererun::reference
