#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace mererun {

enum class DraftHeadPlaceKind {
  kRoot,    // the folder or file that the caller named
  kShards,  // `mtp.*` tensors in the target's own files
  kBeside,  // mtp.safetensors or model-mtp.safetensors beside the target's files
  kFolder,  // mtp/ inside the target's folder
};

/// One place that may hold a draft head. Its files exist; whether they hold a head is known once opened.
struct DraftHeadPlace {
  DraftHeadPlaceKind kind = DraftHeadPlaceKind::kShards;
  std::filesystem::path folder;              // of the files; of their config.json and index too
  std::vector<std::filesystem::path> files;  // ascending by name; empty for kShards
};

/// The places to look for the draft head of the checkpoint in `folder`, in order; the first that holds one
/// wins: `mtp_root` (a safetensors file, or a folder with weights in it or in its mtp/), the target's shards,
/// `mtp.safetensors`, `model-mtp.safetensors`, `mtp/` (all its *.safetensors: `model`, `weights` or shards;
/// `weights.safetensors` is left out beside a `model.safetensors`).
/// The entry kShards is always there. Reads folder listings only.
///
/// Errors: kNotFound if `mtp_root` is given but has no safetensors file; kIo.
std::vector<DraftHeadPlace> find_draft_head_files(const std::filesystem::path& folder,
                                                  const std::optional<std::filesystem::path>& mtp_root = {});

/// Whether a file of this name in a checkpoint folder is a draft head's, kept apart from the trunk's tensors:
/// its tensors may be named like the trunk's.
bool is_draft_head_filename(std::string_view filename);

/// The `*.safetensors` files of a folder, ascending by name; hidden files are left out, symbolic links are
/// kept. Errors: kNotFound if there is no such folder; kIo if it cannot be listed.
std::vector<std::filesystem::path> list_safetensors(const std::filesystem::path& folder);

}  // namespace mererun
