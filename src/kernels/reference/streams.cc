#include "kernels/streams.h"

#include "kernels/ngram.h"
#include "kernels/numerics.h"
#include "kernels/reference/head_norm.h"
#include "kernels/reference/loops.h"

namespace mererun::reference::MERERUN_REFERENCE_BUILD {
namespace {

namespace nm = numerics;

void grouped_rms_norm(const GroupedRmsNormParams& p) {
  const int n = p.x.cols / p.groups;
  for (int t = 0; t < p.x.rows; ++t) {
    for (int g = 0; g < p.groups; ++g) {
      norm_run(p.x.row<float>(t) + g * n, p.weight.row<float>(0) + g * n, n, p.eps,
               p.out.row<float>(t) + g * n);
    }
  }
}

void stream_silu(const StreamSiluParams& p) {
  for (int t = 0; t < p.x.rows; ++t) {
    const float* x = p.x.row<float>(t);
    float* out = p.out.row<float>(t);
    for (int i = 0; i < p.x.cols; ++i) out[i] = nm::silu_f32(x[i] * 0.25f);
  }
}

void mix_streams(const MixStreamsParams& p) {
  const int n = p.out.cols;
  for (int t = 0; t < p.out.rows; ++t) {
    const float* x = p.x.row<float>(t);
    const float* gate = p.gate.row<float>(t);
    float* out = p.out.row<float>(t);
    for (int d = 0; d < n; ++d) {
      float a[kStreams];
      for (int c = 0; c < kStreams; ++c) a[c] = nm::sigmoid_f32(gate[c * n + d]) * x[c * n + d];
      out[d] = ((a[0] + a[1]) + (a[2] + a[3])) * 0.25f;
    }
  }
}

void add_to_streams(const AddToStreamsParams& p) {
  const int n = p.y.cols;
  for (int t = 0; t < p.y.rows; ++t) {
    const float* y = p.y.row<float>(t);
    for (int c = 0; c < kStreams; ++c) {
      const float strength = 2.0f * nm::sigmoid_f32(p.inject.row<float>(t)[c] * 0.25f);
      float* stream = p.streams.row<float>(t) + c * n;
      for (int d = 0; d < n; ++d) stream[d] = nm::fma_f32(strength, y[d], stream[d]);
    }
  }
}

void ngram_gate(const NgramGateParams& p) {
  const int n = p.value.cols;
  const float scale = nm::inverse_root(n);
  for (int t = 0; t < p.value.rows; ++t) {
    const float* value = p.value.row<float>(t);
    for (int c = 0; c < kStreams; ++c) {
      const float s =
          nm::sum_of_products(p.key.row<float>(t) + c * n, p.query.row<float>(t) + c * n, n) * scale;
      const float gate = nm::sigmoid_f32(nm::signed_root(s));
      float* out = p.out.row<float>(t) + c * n;
      for (int d = 0; d < n; ++d) out[d] = gate * value[d];
    }
  }
}

void ngram_conv(const NgramConvParams& p) {
  const int taps = p.weight.rows;
  const int past = p.window.rows;
  for (int t = 0; t < p.inputs.rows; ++t) {
    const float* gated = p.gated.row<float>(t);
    float* residual = p.residual.row<float>(t);
    for (int i = 0; i < p.inputs.cols; ++i) {
      float acc = 0;
      for (int j = 0; j < taps; ++j) {
        const int source = t - p.dilation * (taps - 1 - j);  // row of `inputs`; negative: in the window
        const float* x = source >= 0 ? p.inputs.row<float>(source) : p.window.row<float>(source + past);
        acc = nm::fma_f32(p.weight.row<float>(j)[i], x[i], acc);
      }
      residual[i] = residual[i] + (gated[i] + nm::silu_f32(acc));
    }
  }
}

}  // namespace

void bind_streams(Loops& loops) {
  loops.grouped_rms_norm = grouped_rms_norm;
  loops.stream_silu = stream_silu;
  loops.mix_streams = mix_streams;
  loops.add_to_streams = add_to_streams;
  loops.ngram_gate = ngram_gate;
  loops.ngram_conv = ngram_conv;
}

}  // namespace mererun::reference::MERERUN_REFERENCE_BUILD
