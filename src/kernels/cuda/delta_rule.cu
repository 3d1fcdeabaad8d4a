#include <algorithm>

#include "kernels/cuda/delta.h"
#include "kernels/cuda/delta_conv.cuh"
#include "kernels/cuda/delta_row.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gated_norm.cuh"

namespace mererun::cuda {

inline namespace delta_rule_cu {

namespace nm = numerics;

constexpr int kThreads = 4 * kUsualDim;  // four lanes a value column
constexpr int kWarps = kThreads / 32;
constexpr int kRuns = kUsualDim / 16;

struct Rule {
  DeltaInputs in;
  int rows, key_heads, heads_per_key;
  Matrix<float> k, alpha;  // the log's
  Matrix<float> state, u;
  Matrix<const float> z;
  const float* weight;
  float eps;
  Matrix<float> out;
  ActivationCodes codes;  // of out
  bool store, log, is_settled;
};

/// What a block holds of a row.
struct Row {
  float q[kUsualDim], k[kUsualDim], v[kUsualDim], out[kUsualDim];
};

/// One block a value head: its rows' convolutions, norms and gates, the delta rule with the state in
/// registers, and the gated norm. Heads that share a key head prepare it each for themselves, which costs
/// less than another launch.
template <GateActivation kActivation>
__global__ void __launch_bounds__(kThreads) delta_rule_kernel(const __grid_constant__ Rule p) {
  extern __shared__ __align__(16) Row rows[];
  __shared__ float decays[kMostRuleRows], betas[kMostRuleRows];
  const int head = static_cast<int>(blockIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const int part = thread % 4, column = thread / 4;
  const int key_head = head / p.heads_per_key;
  if (!p.is_settled) wait_for_predecessor();

  float s[kRuns][4];
  float* state = p.state.row(head * kUsualDim) + column;
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) s[i][j] = state[(16 * i + 4 * part + j) * p.state.stride];
  }
  // One warp a query, key or value of a row.
  const auto first_channel = [&](int item) {
    const int role = item % 3;
    const int heads_before = role == 0   ? key_head
                             : role == 1 ? p.key_heads + key_head
                                         : 2 * p.key_heads + head;
    return lane + kUsualDim * heads_before;
  };
  int item = warp;
  HeadTaps taps;
  load_taps(p.in, first_channel(item), taps);
  float weight[kUsualHeld];
#pragma unroll
  for (int m = 0; m < kUsualHeld; ++m) weight[m] = p.weight[lane + 32 * m];
  const float a_log = p.in.a_log[head], dt_bias = p.in.dt_bias[head];
  if (p.is_settled) wait_for_predecessor();
  let_successor_start();

  for (; item < 3 * p.rows; item += kWarps) {
    const int t = item / 3, role = item % 3;
    const int first = first_channel(item);
    if (item != warp) load_taps(p.in, first, taps);
    HeadValues x;
    convolve(p.in, t, first, taps, x);
    if (role < 2) norm_key(x, role == 0, p.in.query_scale);
    float* to = role == 0 ? rows[t].q : role == 1 ? rows[t].k : rows[t].v;
#pragma unroll
    for (int m = 0; m < kUsualHeld; ++m) to[lane + 32 * m] = x[m];
    if (role == 1 && p.log && head % p.heads_per_key == 0) {
#pragma unroll
      for (int m = 0; m < kUsualHeld; ++m) p.k.row(t)[first - p.key_heads * kUsualDim + 32 * m] = x[m];
    }
  }
  if (const int t = thread - (kThreads - kMostRuleRows); t >= 0 && t < p.rows) {
    decays[t] = nm::delta_decay(a_log, p.in.a.row(t)[head], dt_bias);
    betas[t] = nm::sigmoid_f32(p.in.b.row(t)[head]);
    if (p.log) p.alpha.row(t)[head] = decays[t];
  }
  const auto load_gate = [&](int t, HeadValues& z) {
#pragma unroll
    for (int m = 0; m < kUsualHeld; ++m) z[m] = p.z.row(t)[head * kUsualDim + lane + 32 * m];
  };
  HeadValues z = {};
  if (warp < p.rows) load_gate(warp, z);
  __syncthreads();
  for (int t = 0; t < p.rows; ++t) {
    const DeltaRow r = step_row(s, kRuns, rows[t].k + 4 * part, rows[t].q + 4 * part, rows[t].v[column],
                                decays[t], betas[t]);
    if (part == 0) rows[t].out[column] = r.o;
    if (part == 1 && p.log) p.u.row(t)[head * kUsualDim + column] = r.u;
  }
  __syncthreads();
  for (int t = warp; t < p.rows; t += kWarps) {
    const int first = head * kUsualDim;
    if (t != warp) load_gate(t, z);
    HeadValues x;
#pragma unroll
    for (int m = 0; m < kUsualHeld; ++m) x[m] = rows[t].out[lane + 32 * m];
    norm_head<kActivation>(x, z, weight, p.eps);
#pragma unroll
    for (int m = 0; m < kUsualHeld; ++m) p.out.row(t)[first + lane + 32 * m] = x[m];
    code_head(p.codes, t, first, x, rows[t].out);
  }
  if (!p.store) return;
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) state[(16 * i + 4 * part + j) * p.state.stride] = s[i][j];
  }
}

}  // namespace delta_rule_cu

bool can_fuse_delta_rule(const DeltaRuleParams& p) {
  const DeltaShape& s = p.prepare.shape;
  return is_usual(s) && s.value_dim == kUsualDim && p.prepare.inputs.rows <= kMostRuleRows &&
         p.norm.heads == s.value_heads && p.norm.weight.cols == kCodeSpan;
}

void run_delta_rule(const LaunchContext& context, const DeltaRuleParams& p, const ActivationCodes& codes,
                    bool state_is_settled) {
  const DeltaShape& s = p.prepare.shape;
  const Rule args{delta_inputs(p.prepare),
                  p.prepare.inputs.rows,
                  s.key_heads,
                  s.value_heads / s.key_heads,
                  matrix<float>(p.prepare.k),
                  matrix<float>(p.prepare.alpha),
                  matrix<float>(p.step.state),
                  matrix<float>(p.step.u),
                  matrix<const float>(p.norm.z),
                  p.norm.weight.row<const float>(0),
                  p.norm.eps,
                  matrix<float>(p.norm.out),
                  codes,
                  p.step.write == StateWrite::kStore,
                  !p.step.u.empty(),
                  state_is_settled};
  const bool silu = p.norm.activation == GateActivation::kSilu;
  void (*kernel)(Rule) =
      silu ? delta_rule_kernel<GateActivation::kSilu> : delta_rule_kernel<GateActivation::kSigmoid>;
  const std::size_t bytes = sizeof(Row) * static_cast<std::size_t>(args.rows);
  allow_shared(kernel, bytes);
  launch(context, "delta_rule", kernel, {dim3(static_cast<unsigned>(s.value_heads)), dim3(kThreads), bytes},
         args);
}

}  // namespace mererun::cuda
