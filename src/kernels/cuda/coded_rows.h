#pragma once

#include <map>
#include <utility>

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/device_scratch.h"
#include "kernels/cuda/launch.h"

namespace mererun::cuda {

/// Whether two views show the same elements.
bool is_same(const TensorView& a, const TensorView& b);

/// The coded forms of activation rows, two per group size and order. The form of a view is kept until
/// something writes to its memory or two others have been coded, so that linears that share an input round it
/// once, also where another one comes between them.
class CodedRows {
 public:
  /// Codes of x in groups of `group`, queued if they are not there yet. Valid until the second next
  /// call with the same group size and order.
  ActivationCodes of(const LaunchContext& context, const TensorView& x, int group,
                     CodeOrder order = CodeOrder::kLanes);

  /// Where an op that writes `x` may leave its codes: they count as current from here on.
  ActivationCodes prepare(const LaunchContext& context, const TensorView& x, int group,
                          CodeOrder order = CodeOrder::kLanes);

  /// Codes of the rows that the entries of a list read, in planes: entry e as block e. Valid until the next
  /// call.
  ActivationCodes of_entries(const LaunchContext& context, const TensorView& x, int group,
                             const ExpertList& list, ExpertRows rows);

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
  struct Forms {
    Form form[2];
    int latest = 0;
  };
  DeviceScratch entry_codes_, entry_sides_;
  std::map<std::pair<int, CodeOrder>, Forms> forms_;
};

}  // namespace mererun::cuda
