#include "kernels/on_converted.h"

namespace mererun {

void tell_converted(const OnConverted& tell, const LinearSource& source) {
  if (!tell) return;
  for (int e = 0; e < source.experts; ++e) {
    const std::int64_t row = e * source.rows_between_experts();
    const auto part = [&](const void* array, std::int64_t row_bytes) {
      if (row_bytes == 0) return;
      tell(static_cast<const std::byte*>(array) + row * row_bytes,
           static_cast<std::size_t>(source.out * row_bytes));
    };
    part(source.weight, source.weight_row_bytes());
    part(source.scales, source.scale_row_bytes());
    part(source.biases, source.scale_row_bytes());
  }
}

}  // namespace mererun
