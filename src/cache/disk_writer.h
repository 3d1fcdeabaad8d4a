#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "cache/disk_index.h"
#include "cache/disk_store.h"
#include "cache/snapshot_image.h"

namespace mererun {

/// The background thread of a disk store: writes files, then enters them in the index; evicts; removes what
/// was found damaged.
///
/// Thread-safety: thread-safe.
class DiskWriter {
 public:
  using PageName = std::pair<std::string, PrefixDigest>;  // what determines it, and its key

  /// Opens its own connection. Errors: those of DiskIndex.
  explicit DiskWriter(const DiskStoreOptions& options);
  /// Finishes what waits.
  ~DiskWriter();

  struct Write {
    DiskIndex::Entry entry;
    SnapshotImage image;
    std::vector<PageName> pages;  // of image.pages
  };
  struct Touch {
    DiskIndex::Entry entry;
    SnapshotClass kind = SnapshotClass::kPrompt;
  };
  struct TouchRow {
    std::int64_t snapshot = 0;
  };
  struct RemoveSnapshot {
    std::int64_t snapshot = 0;
  };
  struct RemovePage {
    std::int64_t page = 0;
  };
  using Job = std::variant<Write, Touch, TouchRow, RemoveSnapshot, RemovePage>;

  /// True if an image of so many bytes may wait.
  bool has_room(std::size_t bytes) const;
  void push(Job job);
  void flush();
  /// True if a write that waits will store the page.
  bool will_store(const PageName& page) const;
  /// Returns once nothing that was pushed for removal is in the index any more.
  void await_removals();

  void count_skipped(std::string_view reason);
  void count_corrupt();
  DiskStoreStatistics statistics();

 private:
  void run();
  void do_job(Write& write);
  void do_job(Touch& touch);
  void do_job(TouchRow& touch);
  void do_job(RemoveSnapshot& remove);
  void do_job(RemovePage& remove);
  void refresh();
  std::string new_name(const PrefixDigest& key, const char* suffix) const;
  void unlink(const std::vector<std::string>& files) const;

  DiskStoreOptions options_;
  std::filesystem::path folder_;  // of this model, inside options_.folder
  DiskIndex index_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<Job> jobs_;
  std::multiset<PageName> waiting_pages_;
  std::size_t waiting_bytes_ = 0;
  int waiting_removals_ = 0;
  bool is_busy_ = false;
  bool stops_ = false;
  DiskStoreStatistics statistics_;
  std::thread thread_;
};

}  // namespace mererun
