#include "cache/disk_repair.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cache/disk_index.h"
#include "cache/snapshot_image.h"
#include "cache/token_hash.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

/// The page and snapshot files of all models, relative to the folder.
std::vector<std::string> stored_files(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& model : fs::directory_iterator(folder)) {
    if (!model.is_directory()) continue;
    for (const auto& file : fs::directory_iterator(model.path()))
      files.push_back((model.path().filename() / file.path().filename()).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void remove_unknown(const fs::path& folder, DiskIndex& index) {
  const std::vector<std::string> listed = index.files();
  const std::set<std::string> known(listed.begin(), listed.end());
  std::error_code ignored;
  for (const std::string& file : stored_files(folder))
    if (!known.contains(file)) fs::remove(folder / file, ignored);
}

bool ends_with(const std::string& text, const char* suffix) { return fs::path(text).extension() == suffix; }

/// Enters every sound file of a folder into an empty index.
void rebuild(const fs::path& folder, DiskIndex& index) {
  std::map<std::pair<std::string, PrefixDigest>, DiskIndex::Page> pages;
  const std::vector<std::string> files = stored_files(folder);
  for (const std::string& file : files) {
    if (!ends_with(file, ".page")) continue;
    const auto content = PageFile::read(folder / file);
    if (!content) continue;
    pages[{content->model, content->page.key}] = {
        content->model, content->page.key, static_cast<std::int64_t>(fs::file_size(folder / file)), file};
  }
  for (const std::string& file : files) {
    if (!ends_with(file, ".snap")) continue;
    const auto content = SnapshotFile::read_any(folder / file);
    if (!content || content->image.ids.empty()) continue;
    const SnapshotImage& image = content->image;
    DiskIndex::Entry entry{.model = content->model,
                           .head = content->head,
                           .key = PrefixDigests(image.ids).whole(),
                           .hash = hash_tokens(image.ids),
                           .length = static_cast<int>(image.ids.size()),
                           .kind = image.kind,
                           .has_logits = !image.logits.empty(),
                           .bytes = static_cast<std::int64_t>(fs::file_size(folder / file)),
                           .file = file};
    std::vector<DiskIndex::Page> needed;
    for (const PageImage& page : image.pages) {
      const auto at = pages.find({page.is_head ? content->head : content->model, page.key});
      if (at == pages.end()) break;
      needed.push_back(at->second);
      if (index.has_page(at->second.model, at->second.key)) needed.back().file.clear();
    }
    if (needed.size() == image.pages.size()) index.insert(entry, needed);
  }
}

/// Present while an index is being built: until it is whole, a file that it does not know is no rubbish.
constexpr const char* kRebuildMark = "rebuilding";

void mark_rebuild(const fs::path& folder) {
  const fs::path mark = folder / kRebuildMark;
  if (!std::ofstream(mark, std::ios::app))
    fail_expected(ErrorCode::kIo, mark.string(), "a file that can be made", "none");
  sync_folder(folder);
}

}  // namespace

void repair_folder(const fs::path& folder) {
  try {
    if (fs::exists(folder / kIndexFile) && !fs::exists(folder / kRebuildMark)) {
      DiskIndex index(folder, SqliteDatabase::Mode::kReadWrite);
      index.check();
      return remove_unknown(folder, index);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData) throw;
    log(LogLevel::kWarn, "prefix_cache_disk", "warning=\"{}; the index is built anew\"", error.what());
  }
  mark_rebuild(folder);
  std::error_code ignored;
  for (const char* suffix : {"", "-wal", "-shm"})
    fs::remove(folder / (std::string(kIndexFile) + suffix), ignored);
  {
    DiskIndex index(folder, SqliteDatabase::Mode::kReadWrite);
    rebuild(folder, index);
    remove_unknown(folder, index);
  }  // closed: its log is on the disk
  fs::remove(folder / kRebuildMark, ignored);
}

}  // namespace mererun
