#include "cache/disk_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cache/disk_repair.h"
#include "cache/disk_writer.h"
#include "cache/token_hash.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

// A folder that has become useless would else say so with every request.
constexpr std::size_t kWarnings = 20;

/// Held shared for as long as a process uses a folder; whoever gets it alone may repair.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : fd_(::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~FolderLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool is_open() const { return fd_ >= 0; }
  bool try_alone() const { return fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) == 0; }
  void share() const {
    if (fd_ >= 0) ::flock(fd_, LOCK_SH);
  }

 private:
  int fd_;
};

class FolderStore final : public DiskStore {
 public:
  FolderStore(Ops& ops, const StateGeometry& geometry, const StatePools& pools, DiskStoreOptions options,
              std::unique_ptr<FolderLock> lock, SqliteDatabase::Mode mode)
      : ops_(ops), geometry_(geometry), pools_(pools), options_(std::move(options)), lock_(std::move(lock)) {
    MERERUN_CHECK(geometry_.draft_head == !options_.head.empty(), "a draft head has an identity");
    if (mode == SqliteDatabase::Mode::kReadWrite) writer_ = std::make_unique<DiskWriter>(options_);
    index_ = std::make_unique<DiskIndex>(options_.folder, mode);
    at_open_.entries = index_->entries();
    at_open_.bytes = index_->bytes();
  }

  Answer find(const Query& query) override {
    Answer answer;
    try {
      search(query, answer);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kDevice) throw;
      warn(error.what());
      if (error.code() == ErrorCode::kCorruptData) ++answer.corrupt_entries;
    } catch (const std::exception& error) {  // no memory for what a file claims to hold
      warn(error.what());
    }
    return answer;
  }

  bool offer(const std::shared_ptr<const Snapshot>& snapshot) override {
    if (!writer_) return true;
    try {
      return enqueue(*snapshot);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kDevice) throw;
      warn(error.what());
      writer_->count_skipped("failed");
    } catch (const std::bad_alloc& error) {
      warn(error.what());
      writer_->count_skipped("failed");
    }
    return true;
  }

  void flush() override {
    if (writer_) writer_->flush();
  }

  DiskStoreStatistics statistics() override { return writer_ ? writer_->statistics() : at_open_; }

 private:
  enum class Load { kDone, kOther, kGone, kUnread, kCorrupt };

  void search(const Query& query, Answer& answer) {
    const std::vector<std::uint64_t> hashes = prefix_hashes(query.prompt);
    int lacking = 0;  // tokens of the longest prefix without the history asked for
    for (const DiskIndex::Row& row : index_->candidates(options_.model, query.longer_than, hashes)) {
      if (query.needs_history && row.head != options_.head) {
        lacking = std::max(lacking, row.length);
        continue;
      }
      switch (load(row, query, answer)) {
        case Load::kDone:
          answer.lacks_history = lacking > row.length;
          if (writer_) writer_->push(DiskWriter::TouchRow{row.id});
          return;
        case Load::kCorrupt: ++answer.corrupt_entries; break;
        case Load::kOther:
        case Load::kUnread:
        case Load::kGone: break;
      }
    }
    answer.lacks_history = lacking > 0;
    if (query.longer_than == 0 && lacking == 0 && answer.corrupt_entries == 0)
      answer.is_of_other_model = index_->is_of_other_model(options_.model, hashes);
  }

  Load load(const DiskIndex::Row& row, const Query& query, Answer& answer) {
    std::optional<SnapshotFile::Content> content;
    try {
      content = SnapshotFile::read(options_.folder / row.file, geometry_);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kNotFound ? missing(row, error) : unread(error);
    }
    const bool is_ours = content && content->model == options_.model &&
                         content->image.has_history == !content->head.empty() &&
                         static_cast<int>(content->image.ids.size()) == row.length &&
                         hash_tokens(content->image.ids) == row.hash;
    if (!is_ours) return drop_snapshot(row);
    SnapshotImage& image = content->image;
    if (!std::equal(image.ids.begin(), image.ids.end(), query.prompt.begin(),
                    query.prompt.begin() + static_cast<std::ptrdiff_t>(image.ids.size())))
      return Load::kOther;  // equal hashes of different ids
    // Another head's history is of no use to this one.
    if (image.has_history && content->head != options_.head) forget_history(image);
    if (query.needs_history && !image.has_history) return Load::kOther;
    const PagesAtHand at_hand = pages_at_hand(query.base);
    const std::vector<DiskIndex::StoredPage> stored = index_->pages_of(row.id);
    try {
      answer.snapshot =
          restore_image(ops_, geometry_, pools_, std::move(image), [&](std::size_t i, const PageImage& page) {
            const auto& known = page.is_head ? at_hand.head : at_hand.trunk;
            return i < known.size() ? known[i] : read_page(page, stored);
          });
    } catch (const BadPage& bad) {
      DiskWriter::Job removal = DiskWriter::RemoveSnapshot{row.id};
      if (bad.id) removal = DiskWriter::RemovePage{*bad.id};
      return drop(row, fmt::format("{}; dropped with what needs it", bad.why), std::move(removal));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kIo) throw;
      return unread(error);
    }
    return Load::kDone;
  }

  static void forget_history(SnapshotImage& image) {
    image.has_history = false;
    image.evaluated = 0;
    image.head_tail.clear();
    image.waiting_rows.clear();
    image.waiting_tokens.clear();
    std::erase_if(image.pages, [](const PageImage& page) { return page.is_head; });
  }

  /// Whole pages of a shorter prefix, which need not be read.
  struct PagesAtHand {
    std::vector<KvPageRef> trunk, head;
  };
  static PagesAtHand pages_at_hand(const Snapshot* base) {
    PagesAtHand at_hand;
    if (base == nullptr) return at_hand;
    const auto whole_pages = [](const KvCache& cache) {
      std::vector<KvPageRef> pages = cache.share_pages();
      pages.resize(static_cast<std::size_t>(cache.length() / kKvPagePositions));
      return pages;
    };
    at_hand.trunk = whole_pages(base->state().kv());
    if (base->has_whole_history()) at_hand.head = whole_pages(base->state().history()->cache());
    return at_hand;
  }

  struct BadPage {
    std::optional<std::int64_t> id;  // absent: the index has no such page for the snapshot
    std::string why;
  };

  /// Reads, verifies and uploads a whole page.
  KvPageRef read_page(const PageImage& wanted, const std::vector<DiskIndex::StoredPage>& stored) {
    const auto at = std::find_if(stored.begin(), stored.end(),
                                 [&](const DiskIndex::StoredPage& page) { return page.key == wanted.key; });
    if (at == stored.end()) throw BadPage{std::nullopt, "a page is not in the index"};
    std::optional<PageFile::Content> content;
    try {
      content = PageFile::read(options_.folder / at->file);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;
      throw BadPage{at->id, error.what()};
    }
    KvPagePool& pool = wanted.is_head ? *pools_.head : *pools_.trunk;
    if (!content || content->page.key != wanted.key || content->page.is_head != wanted.is_head ||
        content->model != (wanted.is_head ? options_.head : options_.model) ||
        content->page.bytes.size() != pool.geometry().page_bytes())
      throw BadPage{at->id, fmt::format("{}: expected a whole page, got a damaged file", at->file)};
    KvPageRef page = pool.acquire();
    ops_.upload(page->bytes.data(), content->page.bytes.data(), content->page.bytes.size());
    return page;
  }

  /// The system refuses to read a file (no descriptor is free, say): nobody knows that it is damaged.
  Load unread(const Error& error) {
    warn(error.what());
    return Load::kUnread;
  }

  /// There is no file: dropped by somebody else meanwhile, or lost.
  Load missing(const DiskIndex::Row& row, const Error& error) {
    if (index_->has_row(row.id)) warn(error.what());
    return drop_snapshot(row);
  }

  Load drop_snapshot(const DiskIndex::Row& row) {
    return drop(row, fmt::format("{}: damaged, dropped", row.file), DiskWriter::RemoveSnapshot{row.id});
  }

  Load drop(const DiskIndex::Row& row, const std::string& warning, DiskWriter::Job removal) {
    if (!index_->has_row(row.id)) return Load::kGone;
    log(LogLevel::kWarn, "prefix_cache_disk", "warning=\"{}\"", warning);
    if (writer_) {
      writer_->count_corrupt();
      writer_->push(std::move(removal));
    }
    return Load::kCorrupt;
  }

  /// False if too much waits already.
  bool enqueue(const Snapshot& snapshot) {
    if (snapshot.kind() == SnapshotClass::kInterval && snapshot.length() % kDiskIntervalTokens != 0)
      return true;
    const PrefixDigests digests(snapshot.ids());
    DiskIndex::Entry entry{.model = options_.model,
                           .head = snapshot.has_whole_history() ? options_.head : "",
                           .key = digests.whole(),
                           .hash = hash_tokens(snapshot.ids()),
                           .length = snapshot.length(),
                           .kind = snapshot.kind(),
                           .has_logits = !snapshot.logits().empty(),
                           .bytes = 0,
                           .file = {}};
    // What is damaged and about to go must not pass for stored: its replacement would be left out.
    writer_->await_removals();
    if (index_->has_snapshot(entry)) {
      writer_->push(DiskWriter::Touch{std::move(entry), snapshot.kind()});
      return true;
    }
    std::vector<PageImage> pages = name_pages(snapshot, digests);
    DiskWriter::Write write;
    // Every page counts against the budget, the new ones alone against the queue.
    std::vector<bool> is_wanted;
    std::size_t whole = snapshot.exclusive_bytes();
    std::size_t fresh = whole;
    for (const PageImage& page : pages) {
      const auto& name = write.pages.emplace_back(page.is_head ? options_.head : options_.model, page.key);
      const std::size_t bytes = (page.is_head ? pools_.head : pools_.trunk)->geometry().page_bytes();
      is_wanted.push_back(!writer_->will_store(name) && !index_->has_page(name.first, name.second));
      whole += bytes;
      if (is_wanted.back()) fresh += bytes;
    }
    if (whole > static_cast<std::size_t>(options_.budget_bytes)) {
      writer_->count_skipped("too-large");
      return true;
    }
    if (!writer_->has_room(fresh)) {
      writer_->count_skipped("queue");
      return false;
    }
    write.image = take_image(snapshot, std::move(pages), is_wanted);
    write.entry = std::move(entry);
    writer_->push(std::move(write));
    return true;
  }

  void warn(const std::string& what) {
    if (warned_.size() < kWarnings && warned_.insert(what).second)
      log(LogLevel::kWarn, "prefix_cache_disk", "warning=\"{}\"", what);
  }

  Ops& ops_;
  StateGeometry geometry_;
  StatePools pools_;
  DiskStoreOptions options_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<DiskIndex> index_;  // of the engine's thread
  std::unique_ptr<DiskWriter> writer_;
  DiskStoreStatistics at_open_;  // of a folder that is only read
  std::set<std::string> warned_;
};

/// A file size limit is an error of the write that meets it, not the end of the process; SQLite writes on any
/// thread.
void ignore_size_limit() {
  struct sigaction action = {};
  if (::sigaction(SIGXFSZ, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) ::signal(SIGXFSZ, SIG_IGN);
}

bool may_write_to(const fs::path& folder) {
  return FolderLock(folder).is_open() && ::access(folder.c_str(), W_OK) == 0;
}

}  // namespace

bool is_disk_store_built() { return true; }
void require_disk_store() {}

std::unique_ptr<DiskStore> open_disk_store(Ops& ops, const StateGeometry& geometry, const StatePools& pools,
                                           const DiskStoreOptions& options) {
  ignore_size_limit();
  std::error_code ignored;
  if (fs::create_directories(options.folder, ignored))
    fs::permissions(options.folder, fs::perms::owner_all, ignored);
  const auto open_as = [&](SqliteDatabase::Mode mode) {
    auto lock = std::make_unique<FolderLock>(options.folder);
    if (mode == SqliteDatabase::Mode::kReadWrite && lock->try_alone()) repair_folder(options.folder);
    lock->share();
    return std::make_unique<FolderStore>(ops, geometry, pools, options, std::move(lock), mode);
  };
  try {
    if (may_write_to(options.folder)) {
      try {
        return open_as(SqliteDatabase::Mode::kReadWrite);
      } catch (const Error& error) {
        // A full disk has no room for the log of the index, and yet holds all that was stored before.
        if (error.code() != ErrorCode::kIo) throw;
        log(LogLevel::kWarn, "prefix_cache_disk", "warning=\"only read: {}\"", error.what());
      }
    }
    return open_as(SqliteDatabase::Mode::kReadOnly);
  } catch (const std::exception& error) {
    log(LogLevel::kWarn, "prefix_cache_disk", "warning=\"not used: {}\"", error.what());
    return nullptr;
  }
}

}  // namespace mererun
