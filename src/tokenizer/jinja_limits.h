#pragma once

#include <cstddef>
#include <cstdint>

namespace mererun {

/// What one rendering may use. A template comes with a checkpoint and is not trusted: it can neither loop for
/// ever nor exhaust memory, whatever it says. Exceeding a limit is Error kInvalidArgument with the line.
struct RenderLimits {
  /// Evaluated nodes, plus what their work on long texts and lists amounts to (Heap::charge_*). A
  /// conversation of 4 MB takes half a million; all of the default takes seconds.
  std::uint64_t max_steps = 30'000'000;
  std::size_t max_output_bytes = std::size_t{32} << 20;
  /// One string value.
  std::size_t max_string_bytes = std::size_t{32} << 20;
  /// All values alive in the rendering, variables included.
  std::size_t max_value_bytes = std::size_t{256} << 20;
  /// Nested evaluations: one macro call takes about six.
  int max_depth = 1000;
  /// Elements of one range(); the limit of Jinja2's sandbox.
  std::int64_t max_range = 100'000;
};

}  // namespace mererun
