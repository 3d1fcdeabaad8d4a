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
  for (int t = 0; t < p.q.rows; ++t) {
    for (int h = 0; h < p.cache.kv_heads; ++h)
      loops_.attend(gathered_.gather(p, t, h), scratch(attend_values(p.cache.head_dim)));
  }
}

}  // namespace mererun::reference
