#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/ngram.h"
#include "kernels/streams.h"

namespace mererun::cuda {

// The four streams of Flash-Next and its n-gram layer; params have been validated and hold at least one row.

void run_grouped_rms_norm(const LaunchContext& context, const GroupedRmsNormParams& p);
void run_stream_silu(const LaunchContext& context, const StreamSiluParams& p);
void run_mix_streams(const LaunchContext& context, const MixStreamsParams& p);
void run_add_to_streams(const LaunchContext& context, const AddToStreamsParams& p);
void run_ngram_gate(const LaunchContext& context, const NgramGateParams& p);
void run_ngram_conv(const LaunchContext& context, const NgramConvParams& p);

}  // namespace mererun::cuda
