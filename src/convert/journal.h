#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "convert/shard_file.h"

namespace mererun {

/// What a conversion has done so far, kept in its unfinished folder as `conversion.json` so that the same
/// command goes on where it was stopped. A shard is entered once it is complete, on disk and read back.
///
/// Thread-safety: one thread only. While one exists, no other process can open the same folder's journal.
class ConversionJournal {
 public:
  /// Opens or starts the journal of an unfinished folder, which exists. `plan` is the identity of source,
  /// options and layout.
  /// Errors: kInvalidArgument if the folder belongs to another plan or another process is at work in it;
  /// kCorruptData for a journal that can't be read; kIo.
  ConversionJournal(const std::filesystem::path& folder, std::string plan);
  ~ConversionJournal();
  ConversionJournal(const ConversionJournal&) = delete;
  ConversionJournal& operator=(const ConversionJournal&) = delete;

  /// What was noted about a finished file, if it was.
  const ShardCheck* find(const std::string& file) const;
  /// Notes a finished file; on disk when this returns. Errors: kIo.
  void add(const std::string& file, ShardCheck check);
  /// Removes the journal: the folder is complete.
  void remove();

 private:
  void load();
  void save() const;

  std::filesystem::path path_;
  std::string plan_;
  std::map<std::string, ShardCheck> done_;
  int lock_ = -1;
};

}  // namespace mererun
