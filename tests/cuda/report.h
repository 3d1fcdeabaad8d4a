#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace mererun::cuda_check {

/// One line of the receipt: a JSON object.
struct Record {
  std::string json;
  bool pass = true;
};

/// Collects records; prints each as it arrives, and keeps a file of all of them complete.
class Report {
 public:
  /// `file` (may be empty) holds a JSON array of the records so far, whenever the program ends.
  explicit Report(std::filesystem::path file) : file_(std::move(file)) {}
  void add(const Record& record);
  bool pass() const { return pass_; }

 private:
  std::filesystem::path file_;
  std::vector<std::string> lines_;
  bool pass_ = true;
};

/// FNV-1a over the bits of floats, every NaN and both zeros alike.
std::uint64_t hash_floats(const std::vector<float>& values, std::uint64_t seed = 0xcbf29ce484222325u);

}  // namespace mererun::cuda_check
