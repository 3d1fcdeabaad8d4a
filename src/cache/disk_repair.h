#pragma once

#include <filesystem>

namespace mererun {

/// Puts a store's folder in order when no other process uses it: removes temporary files and those that the
/// index does not know (a process ended between writing and entering them), and builds a damaged index anew
/// from the files. A rebuilding that was cut short is begun again by the next call. Errors: kIo,
/// kCorruptData.
void repair_folder(const std::filesystem::path& folder);

}  // namespace mererun
