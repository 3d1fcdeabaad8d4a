#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mererun {

/// Checks `folder`/MERERUN_PLE_STORE.json, the optional statement of the files that hold the n-gram table:
/// {"files": [{"path", "bytes"}]}, paths relative to the folder. Adds a problem for each file that is missing
/// or has another size. The table is read where its tensors lie; nothing is placed or copied. Errors:
/// kCorruptData for bad JSON or a wrong type. Internal to model/.
void check_table_placement(const std::filesystem::path& folder, std::vector<std::string>& problems);

}  // namespace mererun
