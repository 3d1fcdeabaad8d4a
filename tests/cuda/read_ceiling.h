#pragma once

namespace mererun::cuda_check {

/// Bytes a second (in TB/s) that a kernel which only reads gets from this GPU: the ceiling of every
/// memory-bound kernel. Best of several launch shapes.
double read_ceiling_tb_per_s();

/// Clocks that one quarter of a multiprocessor takes per matrix instruction when nothing waits for anything.
struct MatrixClocks {
  double int8 = 0;  // m16n8k32, int8 by int8
  double half = 0;  // m16n8k16, half by half into f32
};
MatrixClocks matrix_clocks();

}  // namespace mererun::cuda_check
