#include <algorithm>

#include "kernels/cuda/delta.h"
#include "kernels/cuda/delta_conv.cuh"
#include "kernels/cuda/delta_row.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gated_norm.cuh"

namespace mererun::cuda {

inline namespace delta_rule_cu {

namespace nm = numerics;

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
struct alignas(16) Row {
  float q[kUsualDim], k[kUsualDim], v[kUsualDim], out[kUsualDim];
  float decay, beta;
};

/// kBlocks blocks a value head, which share its columns and the warps' tasks: its rows' convolutions, norms
/// and gates, the delta rule with the state in registers, and the gated norm. Heads that share a key head
/// prepare it each for themselves, which costs less than another launch.
template <GateActivation kActivation, int kBlocks>
__global__ void __launch_bounds__(4 * kUsualDim / kBlocks) delta_rule_kernel(const __grid_constant__ Rule p) {
  using Head = Cluster<kBlocks>;
  constexpr int kThreads = 4 * kUsualDim / kBlocks;  // four lanes a value column
  constexpr int kWarps = kThreads / 32;
  extern __shared__ __align__(16) Row rows[];
  const int head = static_cast<int>(blockIdx.x) / kBlocks, rank = Head::rank();
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const int part = thread % 4, column = rank * (kUsualDim / kBlocks) + thread / 4;
  const int key_head = head / p.heads_per_key;
  Head::arrive();
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
  const int first_item = kBlocks * warp + rank;
  int item = first_item;
  HeadTaps taps;
  load_taps(p.in, first_channel(item), taps);
  float weight[kUsualHeld];
#pragma unroll
  for (int m = 0; m < kUsualHeld; ++m) weight[m] = p.weight[lane + 32 * m];
  const float a_log = p.in.a_log[head], dt_bias = p.in.dt_bias[head];
  if (p.is_settled) wait_for_predecessor();
  let_successor_start();

  Head::wait();
  for (; item < 3 * p.rows; item += kBlocks * kWarps) {
    const int t = item / 3, role = item % 3;
    const int first = first_channel(item);
    if (item != first_item) load_taps(p.in, first, taps);
    HeadValues x;
    convolve(p.in, t, first, taps, x);
    if (role < 2) norm_key(x, role == 0, p.in.query_scale);
    float* to = role == 0 ? rows[t].q : role == 1 ? rows[t].k : rows[t].v;
#pragma unroll
    for (int m = 0; m < kUsualHeld; ++m) Head::store_all(to + lane + 32 * m, x[m]);
    if (role == 1 && p.log && head % p.heads_per_key == 0) {
#pragma unroll
      for (int m = 0; m < kUsualHeld; ++m) p.k.row(t)[first - p.key_heads * kUsualDim + 32 * m] = x[m];
    }
  }
  if (const int t = thread - (kThreads - kMostRuleRows); t >= 0 && t < p.rows) {
    rows[t].decay = nm::delta_decay(a_log, p.in.a.row(t)[head], dt_bias);
    rows[t].beta = nm::sigmoid_f32(p.in.b.row(t)[head]);
    if (p.log && rank == 0) p.alpha.row(t)[head] = rows[t].decay;
  }
  const auto load_gate = [&](int t, HeadValues& z) {
#pragma unroll
    for (int m = 0; m < kUsualHeld; ++m) z[m] = p.z.row(t)[head * kUsualDim + lane + 32 * m];
  };
  HeadValues z = {};
  const int first_row = kBlocks * warp + rank;  // of those whose norm this warp takes
  if (first_row < p.rows) load_gate(first_row, z);
  Head::barrier();
  for (int t = 0; t < p.rows; ++t) {
    const DeltaRow r = step_row(s, kRuns, rows[t].k + 4 * part, rows[t].q + 4 * part, rows[t].v[column],
                                rows[t].decay, rows[t].beta);
    if (part == 0) Head::store(rows[t].out + column, t % kBlocks, r.o);
    if (part == 1 && p.log) p.u.row(t)[head * kUsualDim + column] = r.u;
  }
  Head::barrier();
  for (int t = first_row; t < p.rows; t += kBlocks * kWarps) {
    const int first = head * kUsualDim;
    if (t != first_row) load_gate(t, z);
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

/// Rows from which two blocks a head pay for their barriers.
constexpr int kSharedRows = 3;

template <GateActivation kActivation>
void launch_rule(const LaunchContext& context, const Rule& args, int heads) {
  const auto run = [&]<int kBlocks>() {
    constexpr auto kKernel = delta_rule_kernel<kActivation, kBlocks>;
    std::size_t bytes = sizeof(Row) * static_cast<std::size_t>(args.rows);
    if (kBlocks > 1) bytes = context.spread(kBlocks * heads, bytes);
    allow_all_shared<kKernel>(context);
    launch(context, "delta_rule", kKernel,
           {.grid = dim3(static_cast<unsigned>(kBlocks * heads)),
            .block = dim3(4 * kUsualDim / kBlocks),
            .shared_bytes = bytes,
            .cluster = kBlocks},
           args);
  };
  const bool shares = context.has_clusters && args.rows >= kSharedRows;
  shares ? run.template operator()<2>() : run.template operator()<1>();
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
  silu ? launch_rule<GateActivation::kSilu>(context, args, s.value_heads)
       : launch_rule<GateActivation::kSigmoid>(context, args, s.value_heads);
}

}  // namespace mererun::cuda
