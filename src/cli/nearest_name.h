#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mererun {

/// Fewest insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (bytes).
/// Source: restricted edit distance (Damerau 1964; Wagner and Fischer 1974).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `name`, the first of equals; empty when none is near enough to be what was meant
/// (a third of the longer name, at least 2 edits, or a candidate that `name` begins).
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace mererun
