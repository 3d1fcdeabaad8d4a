#include "cache/sqlite_database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include "base/error.h"

namespace mererun {
namespace {

constexpr int kBusyMilliseconds = 30000;

/// Null: not opened; `error` says why.
sqlite3* open_handle(const std::string& name, int flags, std::string& error) {
  sqlite3* db = nullptr;
  if (sqlite3_open_v2(name.c_str(), &db, SQLITE_OPEN_NOMUTEX | flags, nullptr) == SQLITE_OK) {
    sqlite3_busy_timeout(db, kBusyMilliseconds);
    return db;
  }
  error = db != nullptr ? sqlite3_errmsg(db) : "no memory";
  sqlite3_close(db);
  return nullptr;
}

/// With the log that a process writes or has left beside it, where that can be used; else the file as it
/// lies.
sqlite3* open_read_only(const std::string& path, std::string& error) {
  std::string escaped;
  for (const char c : path)
    escaped += c == '%' || c == '?' || c == '#' ? fmt::format("%{:02x}", c) : std::string(1, c);
  for (const char* how : {"mode=ro", "immutable=1"}) {
    sqlite3* db = open_handle("file:" + escaped + "?" + how, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, error);
    if (db == nullptr ||
        sqlite3_exec(db, "SELECT 1 FROM sqlite_master", nullptr, nullptr, nullptr) == SQLITE_OK)
      return db;
    error = sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  return nullptr;
}

}  // namespace

SqliteDatabase::SqliteDatabase(const std::filesystem::path& path, Mode mode) {
  const bool writes = mode == Mode::kReadWrite;
  // SQLite would leave a new file to the umask; log and shared memory get the file's own mode. Only a new
  // file may be opened and closed here: closing one drops every lock this process holds on it through other
  // connections.
  if (writes) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) ::close(fd);
  }
  std::string error;
  db_ = writes ? open_handle(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, error)
               : open_read_only(path, error);
  if (db_ == nullptr)
    throw Error(ErrorCode::kIo, fmt::format("{}: expected an index, got: {}", path.string(), error));
  if (!writes) return;
  try {
    execute("PRAGMA journal_mode = WAL");
    execute("PRAGMA synchronous = NORMAL");  // whole after any crash; the last entries may be missing
  } catch (const Error&) {
    sqlite3_close(db_);
    throw;
  }
}

SqliteDatabase::~SqliteDatabase() { sqlite3_close_v2(db_); }

void SqliteDatabase::fail(std::string_view action) const {
  const int code = sqlite3_errcode(db_) & 0xff;
  // Statements are fixed: one that SQLite does not understand was prepared for a damaged schema.
  const bool damaged =
      code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_FORMAT || code == SQLITE_ERROR;
  throw Error(damaged ? ErrorCode::kCorruptData : ErrorCode::kIo,
              fmt::format("prefix cache index: expected to {}, got: {}", action, sqlite3_errmsg(db_)));
}

void SqliteDatabase::execute(const char* sql) {
  if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail(sql);
}

std::int64_t SqliteDatabase::last_insert_id() const { return sqlite3_last_insert_rowid(db_); }

SqliteStatement::SqliteStatement(const SqliteDatabase& database, const char* sql) : database_(database) {
  if (sqlite3_prepare_v2(database.handle(), sql, -1, &statement_, nullptr) != SQLITE_OK) database.fail(sql);
}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

SqliteStatement& SqliteStatement::bind(std::int64_t value) {
  if (sqlite3_bind_int64(statement_, next_++, value) != SQLITE_OK) database_.fail("bind a number");
  return *this;
}

SqliteStatement& SqliteStatement::bind(const std::string& text) {
  const int bytes = static_cast<int>(text.size());
  if (sqlite3_bind_text(statement_, next_++, text.data(), bytes, SQLITE_TRANSIENT) != SQLITE_OK)
    database_.fail("bind a text");
  return *this;
}

SqliteStatement& SqliteStatement::bind(std::span<const std::uint8_t> blob) {
  const int bytes = static_cast<int>(blob.size());
  if (sqlite3_bind_blob(statement_, next_++, blob.data(), bytes, SQLITE_TRANSIENT) != SQLITE_OK)
    database_.fail("bind bytes");
  return *this;
}

bool SqliteStatement::step() {
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  if (result != SQLITE_DONE) database_.fail("step through rows");
  return false;
}

SqliteStatement& SqliteStatement::reset() {
  sqlite3_reset(statement_);  // says again how the last step failed
  next_ = 1;
  return *this;
}

std::int64_t SqliteStatement::work() const {
  return sqlite3_stmt_status(statement_, SQLITE_STMTSTATUS_VM_STEP, 0);
}

std::int64_t SqliteStatement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string SqliteStatement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return text != nullptr ? std::string(text) : std::string();
}

std::string_view SqliteStatement::blob(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

SqliteTransaction::SqliteTransaction(SqliteDatabase& database, Kind kind) : database_(database) {
  database_.execute(kind == Kind::kWrite ? "BEGIN IMMEDIATE" : "BEGIN");
}

SqliteTransaction::~SqliteTransaction() {
  if (open_) sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void SqliteTransaction::commit() {
  database_.execute("COMMIT");
  open_ = false;
}

}  // namespace mererun
