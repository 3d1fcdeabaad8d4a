#include "convert/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "checkpoint/config_json.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "conversion.json";

Json errors_json(const ErrorTable& errors) {
  Json list = Json::array();
  for (const auto& [format, error] : errors)
    list.push_back(
        {format.first, format.second, error.weights, error.squared_error, error.squared_reference});
  return list;
}

ErrorTable read_errors(const Json& list) {
  ErrorTable errors;
  for (const Json& entry : list)
    errors[{entry.at(0).get<int>(), entry.at(1).get<int>()}] = {
        entry.at(2).get<std::uint64_t>(), entry.at(3).get<double>(), entry.at(4).get<double>()};
  return errors;
}

}  // namespace

ConversionJournal::ConversionJournal(const fs::path& folder, std::string plan)
    : path_(folder / kFile), plan_(std::move(plan)) {
  // The folder itself carries the lock: the journal's file is replaced when it is saved.
  lock_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) fail_expected(ErrorCode::kIo, folder.string(), "a folder", std::strerror(errno));
  try {
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0)
      fail_expected(ErrorCode::kInvalidArgument, folder.string(),
                    "a folder that no other conversion works in", "one that is locked");
    fs::exists(path_) ? load() : save();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

ConversionJournal::~ConversionJournal() { ::close(lock_); }

void ConversionJournal::load() {
  const Json document = read_json_file(path_);
  const std::string plan = require_string(document, "plan", path_.string());
  if (plan != plan_) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: expected an unfinished conversion of the same source with the same options, "
                            "got that of another",
                            path_.parent_path().string()),
                "remove that folder, or choose another output");
  }
  try {
    for (const auto& [file, entry] : document.at("files").items()) {
      done_[file] = {.sha256 = entry.at("sha256").get<std::string>(),
                     .bytes = entry.at("bytes").get<std::uint64_t>(),
                     .errors = read_errors(entry.at("errors"))};
    }
  } catch (const Json::exception&) {
    fail_expected(ErrorCode::kCorruptData, path_.string(), "the journal of a conversion", "something else");
  }
}

void ConversionJournal::save() const {
  Json files = Json::object();
  for (const auto& [file, check] : done_) {
    files[file] = {{"sha256", check.sha256}, {"bytes", check.bytes}, {"errors", errors_json(check.errors)}};
  }
  const fs::path fresh = path_.string() + ".part";
  write_text_file(fresh, Json{{"plan", plan_}, {"files", files}}.dump(1));
  fs::rename(fresh, path_);
}

const ShardCheck* ConversionJournal::find(const std::string& file) const {
  const auto found = done_.find(file);
  return found == done_.end() ? nullptr : &found->second;
}

void ConversionJournal::add(const std::string& file, ShardCheck check) {
  done_[file] = std::move(check);
  save();
}

void ConversionJournal::remove() { fs::remove(path_); }

}  // namespace mererun
