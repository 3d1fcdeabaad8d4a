#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace mererun {

/// One connection to an SQLite file. Every failure is an Error: kCorruptData where the file is damaged, else
/// kIo.
///
/// Thread-safety: one thread at a time.
class SqliteDatabase {
 public:
  enum class Mode {
    kReadWrite,  // creates the file; write-ahead log, waits for other processes
    kReadOnly,   // of a folder that can't be written: with the log beside it where SQLite can use that
  };
  SqliteDatabase(const std::filesystem::path& path, Mode mode);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  void execute(const char* sql);
  std::int64_t last_insert_id() const;
  sqlite3* handle() const { return db_; }
  [[noreturn]] void fail(std::string_view action) const;

 private:
  sqlite3* db_ = nullptr;
};

/// A statement with its values bound in order; step through its rows.
///
/// Thread-safety: as its database.
class SqliteStatement {
 public:
  SqliteStatement(const SqliteDatabase& database, const char* sql);
  ~SqliteStatement();
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  SqliteStatement& bind(std::int64_t value);
  SqliteStatement& bind(const std::string& text);
  SqliteStatement& bind(std::span<const std::uint8_t> blob);
  /// True: a row; false: done.
  bool step();
  /// Ready to be bound anew.
  SqliteStatement& reset();
  /// Steps of SQLite's virtual machine so far: its measure of the rows that a statement looked at.
  std::int64_t work() const;
  std::int64_t integer(int column) const;
  std::string text(int column) const;
  std::string_view blob(int column) const;

 private:
  const SqliteDatabase& database_;
  sqlite3_stmt* statement_ = nullptr;
  int next_ = 1;
};

/// Rolls back unless committed.
class SqliteTransaction {
 public:
  enum class Kind {
    kWrite,  // takes the write lock at once
    kRead,   // all statements see one state
  };
  explicit SqliteTransaction(SqliteDatabase& database, Kind kind = Kind::kWrite);
  ~SqliteTransaction();
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;
  void commit();

 private:
  SqliteDatabase& database_;
  bool open_ = true;
};

}  // namespace mererun
