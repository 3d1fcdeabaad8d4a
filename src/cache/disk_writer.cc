#include "cache/disk_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <random>

#include "base/error.h"
#include "base/log.h"

namespace mererun {
namespace {

/// Bytes of host memory that a job holds while it waits.
std::size_t held_bytes(const DiskWriter::Job& job) {
  const auto* write = std::get_if<DiskWriter::Write>(&job);
  return write != nullptr ? write->image.size_bytes() : 0;
}

/// Pages that a job will store.
std::vector<DiskWriter::PageName> pages_to_store(const DiskWriter::Job& job) {
  std::vector<DiskWriter::PageName> pages;
  const auto* write = std::get_if<DiskWriter::Write>(&job);
  for (std::size_t i = 0; write != nullptr && i < write->pages.size(); ++i)
    if (!write->image.pages[i].bytes.empty()) pages.push_back(write->pages[i]);
  return pages;
}

bool is_removal(const DiskWriter::Job& job) {
  return std::holds_alternative<DiskWriter::RemoveSnapshot>(job) ||
         std::holds_alternative<DiskWriter::RemovePage>(job);
}

}  // namespace

DiskWriter::DiskWriter(const DiskStoreOptions& options)
    : options_(options),
      folder_(options.folder / options.model.substr(0, 16)),
      index_(options.folder, SqliteDatabase::Mode::kReadWrite) {
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, ignored);
  unlink(index_.evict(options_.budget_bytes, statistics_.evictions));  // it may have been larger
  refresh();
  thread_ = std::thread([this] { run(); });
}

DiskWriter::~DiskWriter() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool DiskWriter::has_room(std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return waiting_bytes_ == 0 || waiting_bytes_ + bytes <= static_cast<std::size_t>(options_.queue_bytes);
}

void DiskWriter::push(Job job) {
  {
    const std::lock_guard lock(mutex_);
    waiting_bytes_ += held_bytes(job);
    for (PageName& page : pages_to_store(job)) waiting_pages_.insert(std::move(page));
    if (is_removal(job)) ++waiting_removals_;
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void DiskWriter::await_removals() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return waiting_removals_ == 0; });
}

void DiskWriter::flush() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return jobs_.empty() && !is_busy_; });
}

bool DiskWriter::will_store(const PageName& page) const {
  const std::lock_guard lock(mutex_);
  return waiting_pages_.contains(page);
}

void DiskWriter::count_skipped(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  ++statistics_.skipped[std::string(reason)];
}

void DiskWriter::count_corrupt() {
  const std::lock_guard lock(mutex_);
  ++statistics_.dropped_corrupt;
}

DiskStoreStatistics DiskWriter::statistics() {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void DiskWriter::run() {
  bool has_warned = false;
  for (;;) {
    std::unique_lock lock(mutex_);
    idle_.notify_all();
    wake_.wait(lock, [this] { return stops_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    is_busy_ = true;
    lock.unlock();
    try {
      std::visit([this](auto& j) { do_job(j); }, job);
    } catch (const std::exception& error) {
      count_skipped("failed");
      // One line for a folder that has become useless, not one for every snapshot.
      if (!std::exchange(has_warned, true))
        log(LogLevel::kWarn, "prefix_cache_disk", "warning=\"{}\"", error.what());
    }
    lock.lock();
    waiting_bytes_ -= held_bytes(job);
    if (is_removal(job)) --waiting_removals_;
    for (const PageName& page : pages_to_store(job)) waiting_pages_.erase(waiting_pages_.find(page));
    is_busy_ = false;
  }
}

/// A name that no process has used: what one drops is never what another has just written.
std::string DiskWriter::new_name(const PrefixDigest& key, const char* suffix) const {
  static thread_local std::random_device random;
  return fmt::format("{}/{}-{:08x}{:08x}.{}", folder_.filename().string(), short_hex(key), random(), random(),
                     suffix);
}

void DiskWriter::unlink(const std::vector<std::string>& files) const {
  for (const std::string& file : files) ::unlink((options_.folder / file).c_str());
}

void DiskWriter::do_job(Write& write) {
  if (index_.has_snapshot(write.entry)) {
    index_.touch(write.entry, write.entry.kind);
    return count_skipped("known");
  }
  std::vector<std::string> files;
  std::int64_t bytes = 0;
  std::int64_t page_files = 0;
  DiskIndex::Inserted inserted;
  try {
    std::vector<DiskIndex::Page> pages;
    for (std::size_t i = 0; i < write.image.pages.size(); ++i) {
      const PageImage& image = write.image.pages[i];
      DiskIndex::Page page{.model = write.pages[i].first, .key = image.key, .bytes = 0, .file = {}};
      if (!image.bytes.empty() && !index_.has_page(page.model, page.key)) {
        page.file = new_name(page.key, "page");
        files.push_back(page.file);
        page.bytes =
            static_cast<std::int64_t>(PageFile::write(options_.folder / page.file, image, page.model));
        bytes += page.bytes;
        ++page_files;
      }
      pages.push_back(std::move(page));
    }
    write.entry.file = new_name(write.entry.key, "snap");
    files.push_back(write.entry.file);
    write.entry.bytes = static_cast<std::int64_t>(SnapshotFile::write(
        options_.folder / write.entry.file, write.image, write.entry.model, write.entry.head));
    bytes += write.entry.bytes;
    sync_folder(folder_);
    inserted = index_.insert(write.entry, pages);
  } catch (...) {
    unlink(files);
    throw;
  }
  unlink(inserted.unused);
  if (inserted.outcome == DiskIndex::Outcome::kKnown) return count_skipped("known");
  if (inserted.outcome == DiskIndex::Outcome::kPageMissing) return count_skipped("page-missing");
  {
    const std::lock_guard lock(mutex_);
    ++statistics_.written_snapshots;
    statistics_.written_pages += page_files;
    statistics_.written_bytes += bytes;
  }
  std::int64_t evicted = 0;
  // As in memory, others make room for what is new; an interval displaces intervals only.
  const bool displaces = write.entry.kind != SnapshotClass::kInterval;
  unlink(index_.evict(options_.budget_bytes, evicted, displaces ? inserted.snapshot : 0));
  {
    const std::lock_guard lock(mutex_);
    statistics_.evictions += evicted;
  }
  refresh();
}

void DiskWriter::do_job(Touch& touch) { index_.touch(touch.entry, touch.kind); }
void DiskWriter::do_job(TouchRow& touch) { index_.touch(touch.snapshot); }
void DiskWriter::do_job(RemoveSnapshot& remove) {
  unlink(index_.remove_snapshot(remove.snapshot));
  refresh();
}
void DiskWriter::do_job(RemovePage& remove) {
  unlink(index_.remove_page(remove.page));
  refresh();
}

/// Reads what the folder holds now into the statistics.
void DiskWriter::refresh() {
  const std::int64_t entries = index_.entries();
  const std::int64_t bytes = index_.bytes();
  const std::lock_guard lock(mutex_);
  statistics_.entries = entries;
  statistics_.bytes = bytes;
}

}  // namespace mererun
