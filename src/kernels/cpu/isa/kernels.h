#pragma once

// The kernels of one instruction set. The including file has included the headers below, opened its namespace
// and defined MERERUN_TABLE (the accessor) and MERERUN_TABLE_ISA.

namespace {
#include "kernels/cpu/isa/affine.h"
#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/common.h"
#include "kernels/cpu/isa/delta.h"
#include "kernels/cpu/isa/dense.h"
#include "kernels/cpu/isa/flash.h"
#include "kernels/cpu/isa/linear.h"
#include "kernels/cpu/isa/rows.h"

constexpr KernelTable kTable = {
    .isa = MERERUN_TABLE_ISA,
    .quantise_row = quantise_row,
    .planar_row = planar_row,
    .linear_panels = linear_panels,
    .gated_panels = gated_panels,
    .combine_panels = combine_panels,
    .embed_row = embed_row,
    .rms_norm = rms_norm,
    .gated_rms_norm = gated_rms_norm,
    .add_rows = add_rows,
    .finish_experts = finish_experts,
    .route_experts = route_experts,
    .swiglu = swiglu,
    .argmax = argmax,
    .attention_prepare = attention_prepare,
    .attend = attend,
    .fold_segments = fold_segments,
    .delta_prepare = delta_prepare,
    .delta_step = delta_step,
    .delta_replay = delta_replay,
    .grouped_rms_norm = grouped_rms_norm,
    .add_to_streams = add_to_streams,
    .ngram_gate = ngram_gate,
    .stream_silu = stream_silu,
    .mix_streams = mix_streams,
    .ngram_conv = ngram_conv,
    .index_append = index_append,
    .index_pool = index_pool,
    .index_scores = index_scores,
};
}  // namespace
