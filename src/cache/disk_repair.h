#pragma once

#include <filesystem>

namespace mererun {

/// Puts a store's folder in order when no other process uses it: enters sound files that the index does not
/// know (a process ended between writing and entering them, or the index lost its newest part), removes those
/// that belong to no entry, and builds a damaged index anew from the files. What was cut short is gone on
/// with by the next call. Files that the store did not name are left alone. Errors: kIo, kUnsupported,
/// kCorruptData.
void repair_folder(const std::filesystem::path& folder);

}  // namespace mererun
