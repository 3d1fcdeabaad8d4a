#include "tests/cuda/report.h"

#include <bit>
#include <cstdio>
#include <fstream>

namespace mererun::cuda_check {

void Report::add(const Record& record) {
  lines_.push_back(record.json);
  pass_ = pass_ && record.pass;
  std::printf("%s\n", record.json.c_str());
  std::fflush(stdout);
  if (file_.empty()) return;
  std::ofstream out(file_);
  const char* separator = "[\n";
  for (const std::string& line : lines_) {
    out << separator << line;
    separator = ",\n";
  }
  out << "\n]\n";
}

std::uint64_t hash_floats(const std::vector<float>& values, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (const float value : values) {
    const float canonical = value != value ? std::bit_cast<float>(0x7fc00000u) : value == 0 ? 0.0f : value;
    hash = (hash ^ std::bit_cast<std::uint32_t>(canonical)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace mererun::cuda_check
