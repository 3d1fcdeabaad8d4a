#pragma once

#include <filesystem>
#include <string_view>

namespace mererun::testing {

/// A new folder under the system's temporary one, removed with all it holds.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  /// Writes a file of the folder, making the folders above it, and returns its path.
  std::filesystem::path write(std::string_view name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

/// Writes a file, making its folders. Errors: std::runtime_error.
void write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace mererun::testing
