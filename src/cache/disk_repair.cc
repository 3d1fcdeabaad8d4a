#include "cache/disk_repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cache/disk_index.h"
#include "cache/snapshot_image.h"
#include "cache/token_hash.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

/// What the store names its files, whole or not. The folder may hold what is somebody else's.
bool is_ours(const fs::directory_entry& file) {
  static const std::regex kNames(fmt::format(
      R"([0-9a-f]{{32}}-[0-9a-f]{{16}}\.(page|snap)|\{}[0-9]+-[0-9a-f]{{16}})", kTemporaryPrefix));
  std::error_code ignored;
  return file.symlink_status(ignored).type() == fs::file_type::regular &&
         std::regex_match(file.path().filename().string(), kNames);
}

/// The store's files of all models, relative to the folder.
std::vector<std::string> stored_files(const fs::path& folder) {
  constexpr auto kSkip = fs::directory_options::skip_permission_denied;
  std::vector<std::string> files;
  for (const auto& model : fs::directory_iterator(folder)) {
    std::error_code ignored;
    if (!model.is_directory(ignored) || model.is_symlink(ignored)) continue;
    for (const auto& file : fs::directory_iterator(model.path(), kSkip))
      if (is_ours(file)) files.push_back((model.path().filename() / file.path().filename()).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::set<std::string> known_to(DiskIndex& index) {
  std::set<std::string> names;
  for (const auto& file : index.files()) names.insert(file.name);
  return names;
}

/// Names and sizes of files are all that SQLite's check can't compare with something: a damaged name would
/// cost every entry that needs the file, a damaged size other entries their place in the budget. Errors:
/// kCorruptData for a file that is not there.
void check_files(const fs::path& folder, DiskIndex& index) {
  for (const auto& [name, bytes] : index.files()) {
    std::error_code missing;
    const auto size = static_cast<std::int64_t>(fs::file_size(folder / name, missing));
    if (missing) fail_expected(ErrorCode::kCorruptData, "prefix cache index", name, "no such file");
    if (size != bytes) index.set_bytes(name, size);
  }
}

bool ends_with(const std::string& text, const char* suffix) { return fs::path(text).extension() == suffix; }

/// Enters the sound ones of the files that an index does not know.
class Newcomers {
 public:
  Newcomers(const fs::path& folder, DiskIndex& index) : folder_(folder), index_(index) {}

  void enter(const std::vector<std::string>& files) {
    for (const std::string& file : files)
      if (ends_with(file, ".page")) note_page(file);
    for (const std::string& file : files)
      if (ends_with(file, ".snap")) enter_snapshot(file);
  }
  /// Those that could not be read, so that nobody knows whether they are sound.
  const std::set<std::string>& unread() const { return unread_; }

 private:
  template <typename Read>
  auto read(const std::string& file, Read reader) -> decltype(reader(fs::path())) {
    try {
      return reader(folder_ / file);
    } catch (const Error& error) {
      log(LogLevel::kWarn, "prefix_cache_disk", "warning=\"{}\"", error.what());
      unread_.insert(file);
      return std::nullopt;
    }
  }

  std::int64_t size_of(const std::string& file) const {
    return static_cast<std::int64_t>(fs::file_size(folder_ / file));
  }

  void note_page(const std::string& file) {
    const auto content = read(file, PageFile::read);
    if (!content) return;
    pages_[{content->model, content->page.key}] = {content->model, content->page.key, size_of(file), file};
  }

  void enter_snapshot(const std::string& file) {
    const auto content = read(file, SnapshotFile::read_any);
    if (!content || content->image.ids.empty()) return;
    const SnapshotImage& image = content->image;
    std::vector<DiskIndex::Page> needed;
    for (const PageImage& page : image.pages) {
      const std::string& model = page.is_head ? content->head : content->model;
      const auto at = pages_.find({model, page.key});
      if (index_.has_page(model, page.key)) {
        needed.push_back({.model = model, .key = page.key, .bytes = 0, .file = {}});
      } else if (at != pages_.end()) {
        needed.push_back(at->second);
      } else {
        return;
      }
    }
    index_.insert({.model = content->model,
                   .head = content->head,
                   .key = PrefixDigests(image.ids).whole(),
                   .hash = hash_tokens(image.ids),
                   .length = static_cast<int>(image.ids.size()),
                   .kind = image.kind,
                   .has_logits = !image.logits.empty(),
                   .bytes = size_of(file),
                   .file = file},
                  needed);
  }

  const fs::path& folder_;
  DiskIndex& index_;
  std::map<std::pair<std::string, PrefixDigest>, DiskIndex::Page> pages_;
  std::set<std::string> unread_;
};

/// Enters what lies in the folder and the index does not know: all of it after a rebuilding that was cut
/// short, the newest after the index's log was lost. Then removes what is no part of an entry.
void take_stock(const fs::path& folder, DiskIndex& index) {
  std::vector<std::string> unknown = stored_files(folder);
  std::erase_if(unknown, [known = known_to(index)](const auto& file) { return known.contains(file); });
  Newcomers newcomers(folder, index);
  newcomers.enter(unknown);
  const std::set<std::string> known = known_to(index);
  std::error_code ignored;
  for (const std::string& file : unknown)
    if (!known.contains(file) && !newcomers.unread().contains(file)) fs::remove(folder / file, ignored);
}

}  // namespace

void repair_folder(const fs::path& folder) {
  try {
    DiskIndex index(folder, SqliteDatabase::Mode::kReadWrite);
    index.check();
    check_files(folder, index);
    return take_stock(folder, index);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData) throw;
    log(LogLevel::kWarn, "prefix_cache_disk", "warning=\"{}; the index is built anew\"", error.what());
  }
  std::error_code ignored;
  for (const char* suffix : {"", "-wal", "-shm"})
    fs::remove(folder / (std::string(kIndexFile) + suffix), ignored);
  DiskIndex index(folder, SqliteDatabase::Mode::kReadWrite);
  take_stock(folder, index);
}

}  // namespace mererun
