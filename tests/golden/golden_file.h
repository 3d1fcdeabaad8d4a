#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/types.h"
#include "checkpoint/safetensors.h"

namespace mererun::testing {

/// Golden vectors of one checkpoint: named arrays, widened on reading.
class GoldenFile {
 public:
  explicit GoldenFile(const std::filesystem::path& path) : file_(path) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  std::vector<std::int64_t> shape(const std::string& name) const { return entry(name).shape; }
  std::vector<float> floats(const std::string& name) const;        // F32 or F16
  std::vector<std::int32_t> ints(const std::string& name) const;   // I32
  std::vector<std::int64_t> longs(const std::string& name) const;  // I64
  std::vector<std::uint8_t> bytes(const std::string& name) const;  // U8

 private:
  const TensorEntry& entry(const std::string& name) const;
  SafetensorsFile file_;
};

/// ||a - b|| / ||b|| in double.
double relative_error(std::span<const float> a, std::span<const float> b);

}  // namespace mererun::testing
