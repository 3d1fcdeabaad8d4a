#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/config_json.h"
#include "checkpoint/draft_head_files.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_entry.h"

namespace mererun {

/// A checkpoint folder or a draft head's files, opened: every header read and checked, every tensor findable
/// under its canonical name. Tensor data is mapped, not read.
///
/// Thread-safety: immutable after opening; may be read from several threads. Movable; entries, files and the
/// config keep their addresses when it moves.
class Checkpoint {
 public:
  /// Unites the headers of all `*.safetensors` files of the folder (not of subfolders; hidden files, and the
  /// draft head files `mtp.safetensors` and `model-mtp.safetensors`, apart), and reads its config.json.
  ///
  /// A `*.safetensors.index.json` is advisory: a tensor found in another file than it says is a note. A file
  /// that it names must exist, and a tensor that it names must be somewhere.
  ///
  /// Errors: kNotFound for a missing folder, config.json, weights or a file that the index names;
  /// kCorruptData for two tensors with one canonical name, a tensor that only the index knows, or any fault
  /// of a header; kIo.
  static Checkpoint open(const std::filesystem::path& folder);

  /// Opens the files of one place where a draft head may be. Canonical names start with `mtp.` whether or not
  /// the file spells it (except `draft_lm_head.*`); where the place is a whole checkpoint, its trunk tensors
  /// keep their names beside them. A config.json is read if there is one. An index is checked for its `mtp.*`
  /// entries only when it has any: the shards of the trunk need not be there.
  static Checkpoint open_sidecar(const DraftHeadPlace& place);

  /// The tensor with this canonical name (`layers.0.mlp.gate.weight`, `embed_tokens.weight`, `norm.weight`,
  /// `lm_head.weight`, `mtp.fc.weight`; vision tensors as stored), or null.
  const TensorEntry* find(std::string_view canonical) const;
  /// All tensors, ascending by canonical name.
  std::span<const TensorEntry> tensors() const { return tensors_; }
  /// Whether any tensor's canonical name starts with `mtp.`.
  bool holds_draft_head() const;

  const std::filesystem::path& path() const { return path_; }
  /// The united files, ascending by name.
  std::span<const SafetensorsFile> files() const { return files_; }
  /// Sum of the sizes of all tensors, in bytes.
  std::uint64_t tensor_bytes() const;

  bool has_config() const { return config_ != nullptr; }
  /// The folder's config.json. Errors: kNotFound if a sidecar has none.
  const Json& config() const;

  /// Oddities that do no harm, one sentence each, naming the file.
  std::span<const std::string> notes() const { return notes_; }

 private:
  Checkpoint() = default;
  void read_files(const std::vector<std::filesystem::path>& paths);
  void unite();

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // views of tensors_[i].name
  std::shared_ptr<const Json> config_;
  std::vector<std::string> notes_;
};

}  // namespace mererun
