#include "cache/disk_index.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace mererun {
namespace {

constexpr std::int64_t kSchema = 1;

constexpr const char* kTables =
    "CREATE TABLE snapshot(id INTEGER PRIMARY KEY, model TEXT NOT NULL, head TEXT NOT NULL,"
    " key BLOB NOT NULL, hash INTEGER NOT NULL, length INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " has_logits INTEGER NOT NULL, bytes INTEGER NOT NULL, file TEXT NOT NULL, last_use INTEGER NOT NULL,"
    " UNIQUE(model, head, key));"
    "CREATE INDEX snapshot_lookup ON snapshot(model, length, hash, head, has_logits);"
    "CREATE INDEX snapshot_age ON snapshot(kind, last_use);"
    "CREATE TABLE page(id INTEGER PRIMARY KEY, model TEXT NOT NULL, key BLOB NOT NULL,"
    " bytes INTEGER NOT NULL, file TEXT NOT NULL, UNIQUE(model, key));"
    "CREATE TABLE snapshot_page(snapshot INTEGER NOT NULL, place INTEGER NOT NULL, page INTEGER NOT NULL,"
    " PRIMARY KEY(snapshot, place)) WITHOUT ROWID;"
    "CREATE INDEX page_use ON snapshot_page(page)";

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::span<const std::uint8_t> blob_of(const PrefixDigest& key) { return key; }

PrefixDigest digest_of(std::string_view blob) {
  PrefixDigest key{};
  if (blob.size() == key.size()) std::memcpy(key.data(), blob.data(), key.size());
  return key;
}

/// Rows of the same ids. One that keeps no history is served by a twin of any head.
constexpr const char* kTwins = "model = ? AND length = ? AND hash = ? AND key = ? AND (head = ? OR ? = '')";

SqliteStatement& bind_twins(SqliteStatement& s, const DiskIndex::Entry& e) {
  s.bind(e.model).bind(e.length).bind(static_cast<std::int64_t>(e.hash)).bind(blob_of(e.key));
  return s.bind(e.head).bind(e.head);
}

}  // namespace

DiskIndex::DiskIndex(const std::filesystem::path& folder, SqliteDatabase::Mode mode)
    : database_(folder / kIndexFile, mode) {
  if (mode == SqliteDatabase::Mode::kReadWrite) create();
}

void DiskIndex::create() {
  SqliteTransaction transaction(database_);
  SqliteStatement version(database_, "PRAGMA user_version");
  version.step();
  if (version.integer(0) == kSchema) return;
  if (is_of_somebody_else())
    throw Error(ErrorCode::kUnsupported, "prefix cache index: expected this program's tables, got others");
  if (version.integer(0) != 0) {
    throw Error(ErrorCode::kCorruptData, "prefix cache index: expected this program's layout, got another");
  }
  database_.execute(kTables);
  database_.execute("PRAGMA user_version = 1");
  transaction.commit();
}

/// True for a database that was never an index: it is left alone.
bool DiskIndex::is_of_somebody_else() {
  SqliteStatement s(database_, "SELECT count(*), sum(name = 'snapshot_page') FROM sqlite_master");
  s.step();
  return s.integer(0) > 0 && s.integer(1) == 0;
}

void DiskIndex::check() {
  // A damaged definition may still be one that SQLite accepts.
  SqliteStatement tables(database_, "SELECT group_concat(sql, ';') FROM sqlite_master WHERE sql IS NOT NULL");
  tables.step();
  if (tables.text(0) != kTables)
    throw Error(ErrorCode::kCorruptData, "prefix cache index: expected this program's tables, got others");
  SqliteStatement s(database_, "PRAGMA integrity_check");
  while (s.step()) {
    std::string found = s.text(0);
    std::replace(found.begin(), found.end(), '\n', ' ');  // a warning is one line
    if (found != "ok")
      throw Error(ErrorCode::kCorruptData, "prefix cache index: expected a sound file, got: " + found);
  }
}

std::vector<DiskIndex::Row> DiskIndex::candidates(const std::string& model, int longer_than,
                                                  std::span<const std::uint64_t> hashes) {
  const SqliteTransaction transaction(database_, SqliteTransaction::Kind::kRead);
  SqliteStatement next(database_,
                       "SELECT length FROM snapshot WHERE model = ? AND length > ? AND length < ?"
                       " ORDER BY length DESC LIMIT 1");
  SqliteStatement found(database_,
                        "SELECT id, head, file FROM snapshot WHERE model = ? AND length = ? AND hash = ?"
                        " ORDER BY has_logits DESC");
  std::vector<Row> rows;
  auto below = static_cast<std::int64_t>(hashes.size());
  while (next.reset().bind(model).bind(longer_than).bind(below).step()) {
    below = next.integer(0);
    const std::uint64_t hash = hashes[static_cast<std::size_t>(below)];
    found.reset().bind(model).bind(below).bind(static_cast<std::int64_t>(hash));
    while (found.step())
      rows.push_back({.id = found.integer(0),
                      .hash = hash,
                      .length = static_cast<int>(below),
                      .head = found.text(1),
                      .file = found.text(2)});
  }
  search_work_ += next.work() + found.work();
  return rows;
}

bool DiskIndex::is_of_other_model(const std::string& model, std::span<const std::uint64_t> hashes) {
  SqliteStatement next(database_, "SELECT model FROM snapshot WHERE model > ? ORDER BY model LIMIT 1");
  std::string other;
  while (next.reset().bind(other).step()) {
    other = next.text(0);
    if (other != model && !candidates(other, 0, hashes).empty()) return true;
  }
  return false;
}

bool DiskIndex::has_snapshot(const Entry& e) {
  SqliteStatement s(database_,
                    (std::string("SELECT 1 FROM snapshot WHERE has_logits >= ? AND ") + kTwins).c_str());
  return bind_twins(s.bind(e.has_logits ? 1 : 0), e).step();
}

bool DiskIndex::has_page(const std::string& model, const PrefixDigest& key) {
  SqliteStatement s(database_, "SELECT 1 FROM page WHERE model = ? AND key = ?");
  return s.bind(model).bind(blob_of(key)).step();
}

std::vector<DiskIndex::StoredPage> DiskIndex::pages_of(std::int64_t snapshot) {
  SqliteStatement s(database_,
                    "SELECT page.id, page.key, page.file FROM snapshot_page JOIN page ON page.id = page"
                    " WHERE snapshot = ? ORDER BY place");
  s.bind(snapshot);
  std::vector<StoredPage> pages;
  while (s.step()) pages.push_back({s.integer(0), digest_of(s.blob(1)), s.text(2)});
  return pages;
}

bool DiskIndex::has_row(std::int64_t snapshot) {
  SqliteStatement s(database_, "SELECT 1 FROM snapshot WHERE id = ?");
  return s.bind(snapshot).step();
}

DiskIndex::Inserted DiskIndex::insert(const Entry& e, const std::vector<Page>& pages) {
  Inserted result;
  const auto give_up = [&](Outcome outcome) {
    result.outcome = outcome;
    result.unused = {e.file};
    for (const Page& page : pages)
      if (!page.file.empty()) result.unused.push_back(page.file);
    return result;
  };
  SqliteTransaction transaction(database_);
  SnapshotClass kind = e.kind;
  std::optional<std::int64_t> twin;
  {
    SqliteStatement s(database_,
                      "SELECT id, kind, has_logits, hash, length FROM snapshot"
                      " WHERE model = ? AND head = ? AND key = ?");
    if (s.bind(e.model).bind(e.head).bind(blob_of(e.key)).step()) {
      // A row that contradicts its key is damaged and gives way.
      const bool is_sound = s.integer(3) == static_cast<std::int64_t>(e.hash) && s.integer(4) == e.length;
      if (is_sound && (s.integer(2) != 0 || !e.has_logits)) return give_up(Outcome::kKnown);
      twin = s.integer(0);
      kind = static_cast<SnapshotClass>(std::min<std::int64_t>(s.integer(1), static_cast<int>(kind)));
    }
  }
  std::vector<std::int64_t> page_ids;
  for (const Page& page : pages) {
    SqliteStatement known(database_, "SELECT id FROM page WHERE model = ? AND key = ?");
    if (known.bind(page.model).bind(blob_of(page.key)).step()) {
      page_ids.push_back(known.integer(0));
      if (!page.file.empty()) result.unused.push_back(page.file);  // another process was faster
      continue;
    }
    if (page.file.empty()) return give_up(Outcome::kPageMissing);
    SqliteStatement s(database_, "INSERT INTO page(model, key, bytes, file) VALUES(?, ?, ?, ?)");
    s.bind(page.model).bind(blob_of(page.key)).bind(page.bytes).bind(page.file).step();
    page_ids.push_back(database_.last_insert_id());
  }
  if (twin) {
    for (std::string& file : drop(*twin)) result.unused.push_back(std::move(file));
  }
  SqliteStatement s(
      database_,
      "INSERT INTO snapshot(model, head, key, hash, length, kind, has_logits, bytes, file, last_use)"
      " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  s.bind(e.model).bind(e.head).bind(blob_of(e.key)).bind(static_cast<std::int64_t>(e.hash));
  s.bind(e.length).bind(static_cast<int>(kind)).bind(e.has_logits ? 1 : 0).bind(e.bytes).bind(e.file);
  s.bind(now()).step();
  const std::int64_t id = database_.last_insert_id();
  for (std::size_t place = 0; place < page_ids.size(); ++place) {
    SqliteStatement link(database_, "INSERT INTO snapshot_page(snapshot, place, page) VALUES(?, ?, ?)");
    link.bind(id).bind(static_cast<std::int64_t>(place)).bind(page_ids[place]).step();
  }
  transaction.commit();
  result.snapshot = id;
  return result;
}

void DiskIndex::touch(const Entry& e, SnapshotClass kind) {
  SqliteStatement s(
      database_,
      (std::string("UPDATE snapshot SET last_use = ?, kind = min(kind, ?) WHERE ") + kTwins).c_str());
  bind_twins(s.bind(now()).bind(static_cast<int>(kind)), e).step();
}

void DiskIndex::touch(std::int64_t snapshot) {
  SqliteStatement s(database_, "UPDATE snapshot SET last_use = ? WHERE id = ?");
  s.bind(now()).bind(snapshot).step();
}

/// Removes the row of a snapshot inside a transaction; its pages stay until `drop_unused_pages`.
std::vector<std::string> DiskIndex::drop(std::int64_t snapshot) {
  std::vector<std::string> files;
  SqliteStatement file(database_, "SELECT file FROM snapshot WHERE id = ?");
  if (file.bind(snapshot).step()) files.push_back(file.text(0));
  SqliteStatement links(database_, "DELETE FROM snapshot_page WHERE snapshot = ?");
  links.bind(snapshot).step();
  SqliteStatement row(database_, "DELETE FROM snapshot WHERE id = ?");
  row.bind(snapshot).step();
  return files;
}

std::vector<std::string> DiskIndex::drop_unused_pages() {
  std::vector<std::string> files;
  SqliteStatement s(database_,
                    "DELETE FROM page WHERE NOT EXISTS (SELECT 1 FROM snapshot_page WHERE page = page.id)"
                    " RETURNING file");
  while (s.step()) files.push_back(s.text(0));
  return files;
}

std::vector<std::string> DiskIndex::remove_snapshot(std::int64_t snapshot) {
  SqliteTransaction transaction(database_);
  std::vector<std::string> files = drop(snapshot);
  for (std::string& file : drop_unused_pages()) files.push_back(std::move(file));
  transaction.commit();
  return files;
}

std::vector<std::string> DiskIndex::remove_page(std::int64_t page) {
  SqliteTransaction transaction(database_);
  std::vector<std::int64_t> users;
  {
    SqliteStatement s(database_, "SELECT DISTINCT snapshot FROM snapshot_page WHERE page = ?");
    s.bind(page);
    while (s.step()) users.push_back(s.integer(0));
  }
  std::vector<std::string> files;
  for (const std::int64_t user : users)
    for (std::string& file : drop(user)) files.push_back(std::move(file));
  for (std::string& file : drop_unused_pages()) files.push_back(std::move(file));
  transaction.commit();
  return files;
}

/// Of system parts and their pages.
std::int64_t DiskIndex::system_bytes() {
  SqliteStatement s(database_,
                    "SELECT (SELECT ifnull(sum(bytes), 0) FROM snapshot WHERE kind = ?1) +"
                    " (SELECT ifnull(sum(bytes), 0) FROM page WHERE id IN (SELECT page FROM snapshot_page"
                    " JOIN snapshot ON snapshot.id = snapshot WHERE kind = ?1))");
  s.bind(static_cast<int>(SnapshotClass::kSystem)).step();
  return s.integer(0);
}

std::vector<std::string> DiskIndex::evict(std::int64_t budget, std::int64_t& evicted, std::int64_t newest) {
  std::vector<std::string> files;
  while (bytes() > budget) {
    SqliteTransaction transaction(database_);
    std::int64_t victim = 0;
    {
      const auto best = system_bytes() <= budget / 2 ? SnapshotClass::kSystem : SnapshotClass::kSemantic;
      SqliteStatement s(database_,
                        "SELECT id FROM snapshot ORDER BY id = ?, max(kind, ?) DESC, last_use LIMIT 1");
      if (!s.bind(newest).bind(static_cast<int>(best)).step()) break;
      victim = s.integer(0);
    }
    for (std::string& file : drop(victim)) files.push_back(std::move(file));
    for (std::string& file : drop_unused_pages()) files.push_back(std::move(file));
    transaction.commit();
    ++evicted;
  }
  return files;
}

std::int64_t DiskIndex::bytes() {
  SqliteStatement s(
      database_,
      "SELECT (SELECT ifnull(sum(bytes), 0) FROM snapshot) + (SELECT ifnull(sum(bytes), 0) FROM page)");
  s.step();
  return s.integer(0);
}

std::int64_t DiskIndex::entries() {
  SqliteStatement s(database_, "SELECT count(*) FROM snapshot");
  s.step();
  return s.integer(0);
}

std::vector<DiskIndex::StoredFile> DiskIndex::files() {
  SqliteStatement s(database_, "SELECT file, bytes FROM snapshot UNION ALL SELECT file, bytes FROM page");
  std::vector<StoredFile> files;
  while (s.step()) files.push_back({s.text(0), s.integer(1)});
  return files;
}

void DiskIndex::set_bytes(const std::string& file, std::int64_t bytes) {
  for (const char* sql :
       {"UPDATE snapshot SET bytes = ? WHERE file = ?", "UPDATE page SET bytes = ? WHERE file = ?"}) {
    SqliteStatement s(database_, sql);
    s.bind(bytes).bind(file).step();
  }
}

}  // namespace mererun
