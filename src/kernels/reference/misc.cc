#include <limits>

#include "kernels/numerics.h"
#include "kernels/reference/loops.h"

namespace mererun::reference::MERERUN_REFERENCE_BUILD {
namespace {

namespace nm = numerics;

void swiglu(const SwigluParams& p) {
  for (int t = 0; t < p.out.rows; ++t) {
    const float* gate = p.gate.row<float>(t);
    const float* up = p.up.row<float>(t);
    float* out = p.out.row<float>(t);
    for (int i = 0; i < p.out.cols; ++i) out[i] = nm::silu_f32(gate[i]) * up[i];
  }
}

void add_rows(const AddRowsParams& p) {
  for (int t = 0; t < p.out.rows; ++t) {
    const float* a = p.a.row<float>(t);
    const float* b = p.b.row<float>(t);
    float* out = p.out.row<float>(t);
    for (int i = 0; i < p.out.cols; ++i) out[i] = a[i] + b[i];
  }
}

void argmax_rows(const ArgmaxRowsParams& p) {
  std::int32_t* ids = p.ids.row<std::int32_t>(0);
  for (int t = 0; t < p.logits.rows; ++t) {
    const float* x = p.logits.row<float>(t);
    int best = 0;
    const float infinity = std::numeric_limits<float>::infinity();
    bool is_numeric = x[0] < infinity;  // false for NaN too
    for (int i = 1; i < p.logits.cols; ++i) {
      if (x[i] > x[best]) best = i;
      is_numeric &= x[i] < infinity;
    }
    ids[t] = is_numeric ? best : -1;
  }
}

}  // namespace

void bind_misc(Loops& loops) {
  loops.swiglu = swiglu;
  loops.add_rows = add_rows;
  loops.argmax_rows = argmax_rows;
}

/// The table of this build.
Loops loops() {
  Loops all;
  bind_linear(all);
  bind_norm(all);
  bind_attention(all);
  bind_delta(all);
  bind_experts(all);
  bind_misc(all);
  bind_streams(all);
  bind_index(all);
  return all;
}

}  // namespace mererun::reference::MERERUN_REFERENCE_BUILD
