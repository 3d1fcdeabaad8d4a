#pragma once

#include <vector>

#include "kernels/attention.h"
#include "kernels/ops.h"
#include "model/config.h"

namespace mererun {

/// Cosines and sines of every position, computed on the host by fixed operations, so that all backends rotate
/// by the same bits; extended as positions fill.
///
/// Angle of position p and frequency i: fl32(p * f_i) with f_i as the reference forms it in fp32; cos and sin
/// are evaluated in double and rounded once. Source: model-math "Rotary embedding"; YaRN (Peng et al. 2023).
/// Thread-safety: one thread at a time.
class RopeTable {
 public:
  RopeTable(Ops& ops, const RopeConfig& config);

  /// Makes positions [0, positions) available. Errors: kOutOfMemory.
  void ensure(int positions);
  RopeView view() const;
  int positions() const { return positions_; }

  /// f_i, i = 0 .. rotary_dims / 2 - 1, after scaling.
  const std::vector<float>& frequencies() const { return frequencies_; }

 private:
  Ops& ops_;
  int rotary_dims_;
  double amplitude_;
  std::vector<float> frequencies_;
  Buffer table_;  // cos [positions, R / 2], then sin
  int positions_ = 0;
};

}  // namespace mererun
