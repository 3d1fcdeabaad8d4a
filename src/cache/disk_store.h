#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "cache/sequence_state.h"
#include "cache/snapshot_tier.h"

namespace mererun {

struct DiskStoreOptions {
  std::filesystem::path folder;  // made if need be; several processes may share it
  std::int64_t budget_bytes = 0;
  std::string model;      // identity of the trunk's weights and of the numeric contract
  std::string head = {};  // identity of the whole model with its draft head; empty without a head
  std::int64_t queue_bytes = std::int64_t{1} << 30;  // host copies that may wait for the disk
};

struct DiskStoreStatistics {
  std::int64_t entries = 0;
  std::int64_t bytes = 0;
  std::int64_t written_snapshots = 0;
  std::int64_t written_pages = 0;
  std::int64_t written_bytes = 0;
  std::int64_t evictions = 0;
  std::int64_t dropped_corrupt = 0;
  std::map<std::string, std::int64_t, std::less<>> skipped;  // too-large, queue, known, page-missing, failed
};

/// Snapshots in a folder that outlives the process: an SQLite index over checksummed files. Pages are stored
/// once for all snapshots that share them. A background thread writes; host copies are taken in `offer`.
///
/// Whenever a process ends, every file is whole or unknown to the index; a damaged one is found by its
/// checksums, dropped with a warning and counted, and never used. The files hold prompt text as ids.
///
/// Thread-safety: `find` and `offer` belong to the thread that owns the Ops, the rest is thread-safe.
class DiskStore : public SnapshotTier {
 public:
  /// Waits until everything offered is written or skipped.
  virtual void flush() = 0;
  virtual DiskStoreStatistics statistics() = 0;
};

/// False in a build without SQLite and xxHash.
bool is_disk_store_built();
/// Errors: kUnsupported, with what to do, in such a build.
void require_disk_store();

/// Snapshots of class kInterval go to disk at multiples of it only: they are many, and worth little there.
inline constexpr int kDiskIntervalTokens = 4096;

/// Opens a folder. Null, with a warning in the log, where it can't be used; a folder that may only be read,
/// or that has no room for the index's log, is read. `ops` and `pools` must outlive it. A file size limit
/// (SIGXFSZ) is ignored from then on, as an error of the write that meets it. Errors: those of
/// require_disk_store.
std::unique_ptr<DiskStore> open_disk_store(Ops& ops, const StateGeometry& geometry, const StatePools& pools,
                                           const DiskStoreOptions& options);

}  // namespace mererun
