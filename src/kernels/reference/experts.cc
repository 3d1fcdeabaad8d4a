#include "kernels/experts.h"

#include "kernels/numerics.h"
#include "kernels/reference/loops.h"

namespace mererun::reference::MERERUN_REFERENCE_BUILD {
namespace {

namespace nm = numerics;

/// True if logit a of expert i ranks before logit b of expert j: value descending, id ascending, NaN last.
bool ranks_before(float a, int i, float b, int j) {
  const bool a_nan = a != a;
  const bool b_nan = b != b;
  if (a_nan != b_nan) return b_nan;
  if (!a_nan && a != b) return a > b;
  return i < j;
}

/// Writes the k experts that rank first, in ascending id.
void choose(const float* logits, int experts, int k, std::int32_t* ids) {
  int count = 0;
  for (int e = 0; e < experts && count < k; ++e) {
    int before = 0;
    for (int other = 0; other < experts; ++other) {
      before += ranks_before(logits[other], other, logits[e], e) ? 1 : 0;
    }
    if (before < k) ids[count++] = e;
  }
}

float largest(const float* x, int n) {
  float most = -__builtin_inff();
  for (int i = 0; i < n; ++i) most = nm::max_f32(most, x[i]);
  return most;
}

void route_row(const RouteExpertsParams& p, int t, float* terms) {
  const float* logits = p.logits.row<float>(t);
  const int experts = p.logits.cols;
  const int k = p.ids.cols;
  std::int32_t* ids = p.ids.row<std::int32_t>(t);
  float* weights = p.weights.row<float>(t);
  if (p.forced_ids.empty()) {
    choose(logits, experts, k, ids);
  } else {
    for (int i = 0; i < k; ++i) ids[i] = p.forced_ids.row<std::int32_t>(t)[i];
  }

  float denominator = 0;
  if (p.normalise) {
    for (int i = 0; i < k; ++i) weights[i] = logits[ids[i]];
    const float most = largest(weights, k);
    for (int i = 0; i < k; ++i) {
      weights[i] = nm::exp_f32(weights[i] - most);
      denominator = denominator + weights[i];
    }
  } else {
    const float most = largest(logits, experts);
    for (int e = 0; e < experts; ++e) terms[e] = nm::exp_f32(logits[e] - most);
    denominator = nm::sum_of_values(terms, experts);
    for (int i = 0; i < k; ++i) weights[i] = terms[ids[i]];
  }
  for (int i = 0; i < k; ++i) weights[i] = weights[i] / denominator;
}

void route_experts(const RouteExpertsParams& p, const Scratch& scratch) {
  for (int t = 0; t < p.logits.rows; ++t) route_row(p, t, scratch.values);
}

void accumulate_expert(float weight, const float* y, float* acc, int n) {
  for (int i = 0; i < n; ++i) acc[i] = nm::fma_f32(weight, y[i], acc[i]);
}

void finish_experts(const float* acc, const float* shared, const float* shared_gate, const float* residual,
                    float* out, int n) {
  if (shared == nullptr) {
    for (int i = 0; i < n; ++i) out[i] = residual[i] + acc[i];
    return;
  }
  const float gate = nm::sigmoid_f32(*shared_gate);
  for (int i = 0; i < n; ++i) out[i] = residual[i] + nm::fma_f32(gate, shared[i], acc[i]);
}

}  // namespace

void bind_experts(Loops& loops) {
  loops.route_experts = route_experts;
  loops.accumulate_expert = accumulate_expert;
  loops.finish_experts = finish_experts;
}

}  // namespace mererun::reference::MERERUN_REFERENCE_BUILD
