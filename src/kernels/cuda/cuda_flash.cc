// The ops that only Flash-Next uses, on the CUDA backend.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/streams.h"
#include "kernels/validate.h"

namespace mererun::cuda {

void CudaOps::grouped_rms_norm(const GroupedRmsNormParams& p) {
  validate(p);
  if (p.x.rows == 0) return;
  writes(p.out);
  run_grouped_rms_norm(context_, p);
}

void CudaOps::stream_silu(const StreamSiluParams& p) {
  validate(p);
  if (p.out.rows == 0 || p.out.cols == 0) return;
  writes(p.out);
  run_stream_silu(context_, p);
}

void CudaOps::mix_streams(const MixStreamsParams& p) {
  validate(p);
  if (p.out.rows == 0 || p.out.cols == 0) return;
  writes(p.out);
  run_mix_streams(context_, p);
}

void CudaOps::add_to_streams(const AddToStreamsParams& p) {
  validate(p);
  if (p.y.rows == 0 || p.y.cols == 0) return;
  writes(p.streams);
  run_add_to_streams(context_, p);
}

void CudaOps::ngram_gate(const NgramGateParams& p) {
  validate(p);
  if (p.value.rows == 0) return;
  writes(p.out);
  run_ngram_gate(context_, p);
}

void CudaOps::ngram_conv(const NgramConvParams& p) {
  validate(p);
  if (p.inputs.rows == 0 || p.inputs.cols == 0) return;
  writes(p.residual);
  run_ngram_conv(context_, p);
}

void CudaOps::index_prepare(const IndexPrepareParams& p) {
  validate(p);
  if (p.qk.rows == 0) return;
  writes(p.q);
  run_index_prepare(context_, p);
}

void CudaOps::select_blocks(const SelectBlocksParams& p) {
  validate(p);
  if (p.q.rows == 0) return;
  writes(p.blocks);
  const std::size_t scores = static_cast<std::size_t>(p.q.rows) * block_scores(p.cache);
  run_select_blocks(context_, p, block_scores_.get_array<float>(scores, context_));
}

void CudaOps::attend_blocks(const AttendBlocksParams& p) {
  validate(p);
  if (p.q.rows == 0) return;
  writes(p.out);
  run_attend_blocks(context_, sparse_, p);
}

}  // namespace mererun::cuda
