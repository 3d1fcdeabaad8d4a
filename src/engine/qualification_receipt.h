#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/resolve.h"

namespace mererun {

/// What a written qualification says about the checkpoint and backend that it was made with.
struct QualificationReceipt {
  std::filesystem::path path;
  std::string model;
  std::string fingerprint;
  std::string backend;
  int contract_version = 0;
  bool pass = false;

  /// Whether it speaks for this checkpoint, this backend and the arithmetic of this build.
  bool counts_for(std::string_view fingerprint_now, std::string_view backend_now) const;
};

/// "<model>.qualification.json", the name under which `model qualify` files a receipt in a folder.
std::string receipt_file_name(std::string_view model);

/// Reads one receipt. Errors: kIo if it cannot be read; kInvalidArgument naming the file and the field that
/// is missing or of another type.
QualificationReceipt read_qualification_receipt(const std::filesystem::path& path);

/// The first passing receipt of this contract version for `id`: in `folder`, then in the stores' folders in
/// search order. A file that is no receipt is skipped with a warning: it must not stop a model that runs
/// without it. Whether it speaks for the files and the backend of today is for `counts_for` to say.
std::optional<QualificationReceipt> find_passing_receipt(const std::filesystem::path& folder,
                                                         std::string_view id,
                                                         const ModelSurroundings& surroundings,
                                                         std::vector<std::string>& warnings);

}  // namespace mererun
