#include "checkpoint/draft_head_files.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "base/error.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

// In search order.
constexpr std::array<std::string_view, 2> kSidecarNames = {"mtp.safetensors", "model-mtp.safetensors"};

// True for a broken link too: opening it then reports the fault, instead of a head that silently is not
// found.
bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

void add_sidecars(const fs::path& folder, DraftHeadPlaceKind kind, std::vector<DraftHeadPlace>& places) {
  for (const std::string_view name : kSidecarNames) {
    if (is_there(folder / name)) places.push_back({kind, folder, {folder / name}});
  }
}

void add_mtp_folder(const fs::path& folder, DraftHeadPlaceKind kind, std::vector<DraftHeadPlace>& places) {
  const fs::path inner = folder / "mtp";
  std::error_code error;
  if (!fs::is_directory(inner, error)) return;
  std::vector<fs::path> files = list_safetensors(inner);
  // Two spellings of one head: uniting them would make every tensor a duplicate.
  if (is_there(inner / "model.safetensors")) {
    std::erase_if(files, [](const fs::path& file) { return file.filename() == "weights.safetensors"; });
  }
  if (!files.empty()) places.push_back({kind, inner, std::move(files)});
}

void add_root(const fs::path& root, std::vector<DraftHeadPlace>& places) {
  constexpr DraftHeadPlaceKind kKind = DraftHeadPlaceKind::kRoot;
  std::error_code error;
  if (!fs::is_directory(root, error) && is_there(root)) {
    places.push_back({kKind, root.parent_path(), {root}});
    return;
  }
  std::vector<fs::path> shards = list_safetensors(root);
  std::erase_if(shards,
                [](const fs::path& file) { return is_draft_head_filename(file.filename().string()); });
  if (!shards.empty()) places.push_back({kKind, root, std::move(shards)});
  add_sidecars(root, kKind, places);
  add_mtp_folder(root, kKind, places);
  if (places.empty()) {
    fail_expected(ErrorCode::kNotFound, root.string(), "a draft head's *.safetensors in it or in its mtp/",
                  "none");
  }
}

}  // namespace

std::vector<DraftHeadPlace> find_draft_head_files(const fs::path& folder,
                                                  const std::optional<fs::path>& mtp_root) {
  std::vector<DraftHeadPlace> places;
  if (mtp_root) add_root(*mtp_root, places);
  places.push_back({DraftHeadPlaceKind::kShards, folder, {}});
  add_sidecars(folder, DraftHeadPlaceKind::kBeside, places);
  add_mtp_folder(folder, DraftHeadPlaceKind::kFolder, places);
  return places;
}

bool is_draft_head_filename(std::string_view filename) {
  return std::find(kSidecarNames.begin(), kSidecarNames.end(), filename) != kSidecarNames.end();
}

std::vector<fs::path> list_safetensors(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    fail_expected(ErrorCode::kNotFound, folder.string(), "a folder",
                  is_there(folder) ? "another kind of file" : "nothing");
  }
  std::vector<fs::path> files;
  fs::directory_iterator entry(folder, error);
  while (!error && entry != fs::directory_iterator()) {
    const fs::path& path = entry->path();
    // Hidden files are other systems' leftovers ("._model.safetensors"), not weights.
    if (path.extension() == ".safetensors" && !path.filename().string().starts_with('.'))
      files.push_back(path);
    entry.increment(error);
  }
  if (error) fail_expected(ErrorCode::kIo, folder.string(), "a folder that can be listed", error.message());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace mererun
