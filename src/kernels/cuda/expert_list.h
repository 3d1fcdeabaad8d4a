#pragma once

#include "kernels/cuda/launch.h"

namespace mererun::cuda {

/// Which row of its input an assignment reads.
enum class ExpertRows { kToken, kPlace };

/// The assignments (row, expert) of one call, grouped by ascending expert, rows ascending inside, in device
/// memory. An entry is a run of at most `width` assignments of one expert.
struct ExpertList {
  int rows = 0, chosen = 0, experts = 0, width = 0;  // T, k, E
  int* source = nullptr;                             // [T * k] place -> row * k + slot
  int* place = nullptr;                              // [T * k] row * k + slot -> place
  int* expert = nullptr;                             // [T * k] place -> expert
  int* entry_expert = nullptr;                       // [most_entries]
  int* entry_first = nullptr;                        // place of its first assignment
  int* entry_count = nullptr;
  int* entries = nullptr;  // [1] how many

  __host__ __device__ int assignments() const { return rows * chosen; }
#if defined(__CUDACC__)
  /// The row of its input that the assignment at a place reads.
  __device__ int row_read(ExpertRows rows_read, int at) const {
    return rows_read == ExpertRows::kToken ? source[at] / chosen : at;
  }
#endif
};

/// Entries there can be.
inline int most_entries(int assignments, int experts, int width) {
  const int by_width = experts + assignments / width;
  return assignments < by_width ? assignments : by_width;
}
/// Integers a list needs.
inline std::size_t expert_list_ints(int assignments, int experts, int width) {
  return 3 * static_cast<std::size_t>(assignments) +
         3 * static_cast<std::size_t>(most_entries(assignments, experts, width)) + 1;
}
/// Lays a list out over `memory` (expert_list_ints integers).
ExpertList lay_expert_list(int* memory, int rows, int chosen, int experts, int width);

/// Fills the list from ids [T, k], ascending in each row. Integers only: the order depends on nothing else.
void run_expert_list(const LaunchContext& context, Matrix<const int> ids, const ExpertList& list);

}  // namespace mererun::cuda
