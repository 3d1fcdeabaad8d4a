#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mererun::cuda_check {

/// One line of the receipt: a JSON object.
struct Record {
  std::string json;
  bool pass = true;
};

/// Collects records; prints each as it arrives.
class Report {
 public:
  void add(const Record& record);
  bool pass() const { return pass_; }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
  bool pass_ = true;
};

/// FNV-1a over the bits of floats, every NaN and both zeros alike.
std::uint64_t hash_floats(const std::vector<float>& values, std::uint64_t seed = 0xcbf29ce484222325u);

}  // namespace mererun::cuda_check
