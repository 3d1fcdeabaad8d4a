#pragma once

#include <map>

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/device_scratch.h"
#include "kernels/cuda/launch.h"

namespace mererun::cuda {

/// The coded forms of activation rows, one per group size. The form of a view is kept until something writes
/// to its memory, so that linears in a row that share an input round it once.
class CodedRows {
 public:
  /// Codes of x in groups of `group`, queued if they are not there yet. Valid until the next call with the
  /// same group size.
  ActivationCodes of(const LaunchContext& context, const TensorView& x, int group);

  /// Where an op that writes `x` may leave its codes: they count as current from here on.
  ActivationCodes prepare(const LaunchContext& context, const TensorView& x, int group);

  /// Memory [data, data + bytes) is about to change.
  void forget(const void* data, std::size_t bytes);
  void forget(const TensorView& view);

 private:
  struct Form {
    TensorView view;
    ActivationCodes codes;
    DeviceScratch code_memory, side_memory;
    bool is_current = false;
  };
  std::map<int, Form> forms_;
};

}  // namespace mererun::cuda
