#include "checkpoint/shard_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "checkpoint/config_json.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_names.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

bool stays_inside(const fs::path& file) {
  return !file.empty() && file.is_relative() && std::find(file.begin(), file.end(), "..") == file.end();
}

ShardIndex read_index(const fs::path& path) {
  // As long as the headers that it repeats may be.
  const Json json = read_json_file(path, {.max_bytes = kMaxSafetensorsHeaderBytes, .max_depth = 16});
  ShardIndex index{path, {}};
  for (const auto& [tensor, file] : require_object(json, "weight_map", path.string()).items()) {
    const auto* name = file.get_ptr<const std::string*>();
    if (name == nullptr || name->find('\0') != name->npos || !stays_inside(*name)) {
      fail_expected(ErrorCode::kCorruptData, fmt::format("{}: weight_map[{}]", path.string(), quote(tensor)),
                    "the name of a file inside the folder",
                    name == nullptr ? file.type_name() : quote(*name));
    }
    index.file_of.emplace(tensor, *name);
  }
  return index;
}

}  // namespace

std::vector<ShardIndex> read_shard_indexes(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  while (!error && entry != fs::directory_iterator()) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".safetensors.index.json") && !name.starts_with('.')) paths.push_back(entry->path());
    entry.increment(error);
  }
  if (error) fail_expected(ErrorCode::kIo, folder.string(), "a folder that can be listed", error.message());
  std::sort(paths.begin(), paths.end());
  std::vector<ShardIndex> indexes;
  for (const fs::path& path : paths) indexes.push_back(read_index(path));
  return indexes;
}

}  // namespace mererun
