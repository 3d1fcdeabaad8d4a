#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "cache/prefix_digest.h"
#include "cache/snapshot.h"
#include "cache/sqlite_database.h"

namespace mererun {

/// What the disk store holds: snapshots, the pages they share, and the files of both, in one SQLite file that
/// several processes may use.
///
/// File names are relative to the store's folder and never used twice, so that a file that one process drops
/// can't be one that another has just written. Errors: kIo, kCorruptData. Thread-safety: one thread at a
/// time.
class DiskIndex {
 public:
  struct Page {
    std::string model;  // what determines its bytes: the trunk, and for a head page the head too
    PrefixDigest key{};
    std::int64_t bytes = 0;
    std::string file;  // empty: believed to be stored already
  };
  struct Entry {
    std::string model, head;  // head is empty where no draft history is kept
    PrefixDigest key{};
    std::uint64_t hash = 0;  // hash_tokens of the ids
    int length = 0;
    SnapshotClass kind = SnapshotClass::kPrompt;
    bool has_logits = false;
    std::int64_t bytes = 0;
    std::string file;
  };
  struct Row {
    std::int64_t id = 0;
    std::uint64_t hash = 0;
    int length = 0;
    std::string head, file;
  };
  struct StoredPage {
    std::int64_t id = 0;
    PrefixDigest key{};
    std::string file;
  };
  enum class Outcome {
    kStored,
    kKnown,        // a twin that knows as much is there
    kPageMissing,  // a page that was believed to be stored has gone
  };
  struct Inserted {
    Outcome outcome = Outcome::kStored;
    std::int64_t snapshot = 0;        // the new row
    std::vector<std::string> unused;  // files that nothing refers to now
  };

  /// Opens the index of a folder; kReadWrite makes a new one where there is none. Errors: kUnsupported for a
  /// database of another program.
  DiskIndex(const std::filesystem::path& folder, SqliteDatabase::Mode mode);

  /// Errors: kCorruptData if the tables are not as they were made, or SQLite finds damage.
  void check();

  /// Snapshots of a model that a prompt may begin with, longest first: those of more than `longer_than`
  /// tokens whose hash is `hashes[length]`. Two look-ups for each length of that range that is stored, so at
  /// most two for each token of the prompt, however many rows there are.
  std::vector<Row> candidates(const std::string& model, int longer_than,
                              std::span<const std::uint64_t> hashes);
  /// True if another model has stored such a one; the same look-ups for each model.
  bool is_of_other_model(const std::string& model, std::span<const std::uint64_t> hashes);
  /// True if a twin that knows as much is there: of the same head, or of any where no history is kept.
  bool has_snapshot(const Entry& entry);
  bool has_page(const std::string& model, const PrefixDigest& key);
  /// In the order in which they were inserted.
  std::vector<StoredPage> pages_of(std::int64_t snapshot);
  bool has_row(std::int64_t snapshot);

  /// Enters a snapshot with the pages that it needs, or nothing. A twin that knows less gives way.
  Inserted insert(const Entry& entry, const std::vector<Page>& pages);
  /// Marks such twins as used now, and keeps the better class.
  void touch(const Entry& entry, SnapshotClass kind);
  void touch(std::int64_t snapshot);
  /// Drops a snapshot, or every snapshot that refers to a page. Returns the files to remove.
  std::vector<std::string> remove_snapshot(std::int64_t snapshot);
  std::vector<std::string> remove_page(std::int64_t page);
  /// Drops entries until at most `budget` bytes remain, by class from kInterval up, then by least recent use;
  /// system parts count as kSemantic where they hold more than half of it. `newest` goes last. Returns the
  /// files to remove; counts the entries in `evicted`.
  std::vector<std::string> evict(std::int64_t budget, std::int64_t& evicted, std::int64_t newest = 0);

  /// Steps of SQLite's virtual machine that `candidates` took so far.
  std::int64_t search_work() const { return search_work_; }

  std::int64_t bytes();
  std::int64_t entries();
  struct StoredFile {
    std::string name;        // relative to the folder
    std::int64_t bytes = 0;  // as entered
  };
  /// The files of all snapshots and pages.
  std::vector<StoredFile> files();
  /// Corrects the bytes of the entry that has this file; nothing happens where none has.
  void set_bytes(const std::string& file, std::int64_t bytes);

 private:
  void create();
  bool is_of_somebody_else();
  std::vector<std::string> drop(std::int64_t snapshot);
  std::int64_t system_bytes();
  std::vector<std::string> drop_unused_pages();

  SqliteDatabase database_;
  std::int64_t search_work_ = 0;
};

/// The index's file name inside the folder.
inline constexpr const char* kIndexFile = "index.sqlite";

}  // namespace mererun
