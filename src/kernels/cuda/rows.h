#pragma once

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/launch.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/ops.h"

namespace mererun::cuda {

// Row-wise operations; params have been validated and hold at least one row.

/// The norms and swiglu can code their result on the way, for the linears that read it: `codes` says where,
/// or is empty.
void run_rms_norm(const LaunchContext& context, const RmsNormParams& p, const ActivationCodes& codes);
void run_gated_rms_norm(const LaunchContext& context, const GatedRmsNormParams& p,
                        const ActivationCodes& codes);
/// Whether the norms can, by the row's and the head's length; swiglu codes whole groups.
bool can_code_rms_norm(int columns);
bool can_code_gated_rms_norm(int dim);
void run_swiglu(const LaunchContext& context, const SwigluParams& p, const ActivationCodes& codes);
void run_add_rows(const LaunchContext& context, const AddRowsParams& p);
/// Device memory to device memory; the two share none.
void run_copy_bytes(const LaunchContext& context, void* to, const void* from, std::size_t bytes);

/// One block's best element of a row; index -1 marks a NaN or +infinity in its part.
struct ArgmaxPart {
  float value;
  int index;
};
/// Parts a row is searched in: a function of its length only.
int argmax_parts(int columns);
/// `parts` holds rows * argmax_parts(columns) entries.
void run_argmax_rows(const LaunchContext& context, const ArgmaxRowsParams& p, ArgmaxPart* parts);

}  // namespace mererun::cuda
