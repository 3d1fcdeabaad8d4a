#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace mererun {

/// One `*.safetensors.index.json`: which file is said to hold which tensor.
struct ShardIndex {
  std::filesystem::path path;
  std::map<std::string, std::string> file_of;  // stored tensor name -> file name relative to the folder
};

/// Reads every index of a folder, ascending by name. File names may lie in a subfolder but not outside the
/// folder. Errors: kCorruptData, naming index and key, for bad JSON, no `weight_map`, or a file name that is
/// no text or leaves the folder; kIo.
std::vector<ShardIndex> read_shard_indexes(const std::filesystem::path& folder);

}  // namespace mererun
