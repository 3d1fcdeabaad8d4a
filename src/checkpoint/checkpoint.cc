#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/tensor_names.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

bool is_head_name(std::string_view canonical) { return canonical.starts_with("mtp."); }

/// Compares an index with the files that were found, by stored names.
class IndexCheck {
 public:
  IndexCheck(const Checkpoint& checkpoint, const ShardIndex& index) : checkpoint_(checkpoint), index_(index) {
    for (const SafetensorsFile& file : checkpoint.files()) files_.emplace(file.filename(), &file);
  }

  /// head_entries_only   leave out the entries of a trunk
  /// Returns notes. Errors: as Checkpoint::open.
  std::vector<std::string> run(bool head_entries_only) {
    std::size_t misplaced = 0;
    std::string example;
    for (const auto& [tensor, file] : index_.file_of) {
      const std::string_view canonical = canonical_name(tensor);
      if (head_entries_only && !is_head_name(canonical)) continue;
      if (find_file(file, tensor).find(tensor) != nullptr) continue;
      if (checkpoint_.find(canonical) == nullptr) {
        fail_expected(ErrorCode::kCorruptData, index_.path.string(),
                      fmt::format("tensor {} in {}", quote(tensor), quote(file)),
                      "no file of the folder that holds it");
      }
      if (misplaced++ == 0) example = fmt::format("{} is not in {}", quote(tensor), quote(file));
    }
    if (misplaced == 0) return {};
    return {fmt::format("{}: {} tensors are in another file or under another prefix than it says; {}",
                        index_.path.string(), misplaced, example)};
  }

 private:
  const SafetensorsFile& find_file(const std::string& name, const std::string& tensor) {
    if (const auto found = files_.find(name); found != files_.end()) return *found->second;
    if (const auto found = others_.find(name); found != others_.end()) return found->second;
    const fs::path path = index_.path.parent_path() / name;
    std::error_code error;
    if (!fs::exists(path, error)) {
      fail_expected(ErrorCode::kNotFound, index_.path.string(),
                    fmt::format("file {} with tensor {}", quote(name), quote(tensor)), "no such file");
    }
    // Not united (a draft head's file, or one in a subfolder), but its claim can be checked.
    return others_.emplace(name, SafetensorsFile(path)).first->second;
  }

  const Checkpoint& checkpoint_;
  const ShardIndex& index_;
  std::map<std::string, const SafetensorsFile*> files_;
  std::map<std::string, SafetensorsFile> others_;
};

/// Gives the tensors of a head's own files their `mtp.` prefix, unless the files spell it themselves.
void name_as_draft_head(std::vector<TensorEntry>& tensors, DraftHeadPlaceKind kind) {
  const auto any = [&](auto holds) { return std::any_of(tensors.begin(), tensors.end(), holds); };
  if (any([](const TensorEntry& t) { return is_head_name(t.name); })) return;
  // A named root may be a whole checkpoint without a head: only the head's own modules tell.
  const bool is_head =
      kind != DraftHeadPlaceKind::kRoot || any([](const TensorEntry& t) {
        return t.name.starts_with("fc.") || t.name.starts_with("fc_") || t.name.starts_with("pre_fc_norm_");
      });
  if (!is_head) return;
  for (TensorEntry& tensor : tensors) {
    if (!tensor.is_vision && !tensor.name.starts_with("draft_lm_head.")) tensor.name.insert(0, "mtp.");
  }
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& folder) {
  std::vector<fs::path> paths = list_safetensors(folder);
  std::erase_if(paths, [](const fs::path& path) { return is_draft_head_filename(path.filename().string()); });
  if (paths.empty()) {
    fail_expected(ErrorCode::kNotFound, folder.string(), "at least one *.safetensors file", "none");
  }
  Checkpoint checkpoint;
  checkpoint.path_ = folder;
  checkpoint.config_ = std::make_shared<const Json>(read_json_file(folder / "config.json"));
  checkpoint.read_files(paths);
  checkpoint.unite();
  for (const ShardIndex& index : read_shard_indexes(folder)) {
    for (std::string& note : IndexCheck(checkpoint, index).run(false))
      checkpoint.notes_.push_back(std::move(note));
  }
  return checkpoint;
}

Checkpoint Checkpoint::open_sidecar(const DraftHeadPlace& place) {
  MERERUN_CHECK(!place.files.empty(), "a head in the target's shards is part of the opened target");
  Checkpoint checkpoint;
  checkpoint.path_ = place.folder;
  if (std::optional<Json> config = read_optional_json_file(place.folder / "config.json")) {
    checkpoint.config_ = std::make_shared<const Json>(std::move(*config));
  }
  checkpoint.read_files(place.files);
  name_as_draft_head(checkpoint.tensors_, place.kind);
  checkpoint.unite();
  // A file beside the target's shards has no index of its own.
  if (place.files.size() == 1 && is_draft_head_filename(place.files[0].filename().string()))
    return checkpoint;
  for (const ShardIndex& index : read_shard_indexes(place.folder)) {
    const bool names_head = std::any_of(index.file_of.begin(), index.file_of.end(), [](const auto& entry) {
      return is_head_name(canonical_name(entry.first));
    });
    for (std::string& note : IndexCheck(checkpoint, index).run(names_head)) {
      checkpoint.notes_.push_back(std::move(note));
    }
  }
  return checkpoint;
}

void Checkpoint::read_files(const std::vector<fs::path>& paths) {
  files_.reserve(paths.size());
  for (const fs::path& path : paths) {
    const SafetensorsFile& file = files_.emplace_back(path);
    tensors_.insert(tensors_.end(), file.tensors().begin(), file.tensors().end());
    notes_.insert(notes_.end(), file.notes().begin(), file.notes().end());
  }
}

void Checkpoint::unite() {
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  by_name_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto [twin, is_new] = by_name_.emplace(tensors_[i].name, i);
    if (is_new) continue;
    const TensorEntry& first = tensors_[twin->second];
    fail_expected(
        ErrorCode::kCorruptData, path_.string(), fmt::format("one tensor {}", quote(first.name)),
        fmt::format("{} in {} and {} in {}", quote(first.stored_name), first.file->path().filename().string(),
                    quote(tensors_[i].stored_name), tensors_[i].file->path().filename().string()));
  }
}

const TensorEntry* Checkpoint::find(std::string_view canonical) const {
  const auto found = by_name_.find(canonical);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

bool Checkpoint::holds_draft_head() const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [](const TensorEntry& t) { return is_head_name(t.name); });
}

std::uint64_t Checkpoint::tensor_bytes() const {
  std::uint64_t sum = 0;
  for (const TensorEntry& tensor : tensors_) sum += tensor.bytes;
  return sum;
}

const Json& Checkpoint::config() const {
  if (config_ == nullptr) {
    fail_expected(ErrorCode::kNotFound, path_.string(), "a config.json", "none");
  }
  return *config_;
}

}  // namespace mererun
