#include "engine/model_inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <regex>

#include "base/error.h"
#include "base/sha256.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/fingerprint.h"
#include "engine/checksums.h"
#include "engine/qualification_receipt.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

/// The folder that a request means, for what can be said about one that does not resolve; empty if there is
/// none.
fs::path meant_folder(const ModelRequest& request, const ModelSurroundings& surroundings) {
  const auto has_config = [](const fs::path& folder) { return fs::is_regular_file(folder / "config.json"); };
  if (!request.root.empty()) return has_config(request.root) ? fs::path(request.root) : fs::path();
  if (find_traits(request.model) == nullptr)
    return has_config(request.model) ? fs::path(request.model) : fs::path();
  for (const fs::path& store : store_folders(surroundings)) {
    if (missing_files(store / request.model).empty()) return store / request.model;
  }
  return {};
}

class Inspector {
 public:
  Inspector(const InspectionOptions& options, const InspectionProgress& progress)
      : options_(options), progress_(progress) {}

  Inspection run() {
    out_.exactness = exactness_of(options_.backend, options_.device);
    resolve();
    read_tokenizer();
    read_template();
    bind_weights();
    describe_files();
    if (options_.compares_checksums) compare_checksums();
    if (options_.scans_values && !out_.is_stopped) scan_values();
    out_.is_unsupported = unsupported_ > 0 && unsupported_ == out_.problems.size();
    return std::move(out_);
  }

 private:
  /// Runs one part; what it throws about the checkpoint becomes a problem.
  template <typename Action>
  bool attempt(const Action& action) {
    try {
      action();
      return true;
    } catch (const Error& error) {
      out_.problems.emplace_back(error.what());
      if (error.code() == ErrorCode::kUnsupported) ++unsupported_;
      return false;
    }
  }

  void resolve() {
    try {
      ResolvedModel resolved = resolve_model(options_.model, options_.surroundings);
      out_.folder = resolved.folder;
      out_.id = resolved.id;
      out_.traits = resolved.traits;
      out_.config = resolved.config;
      out_.warnings = resolved.warnings;
      manifest_ = resolved.manifest;
      load_ = resolved.load_options();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInvalidArgument) throw;
      const fs::path folder = meant_folder(options_.model, options_.surroundings);
      if (folder.empty()) throw;
      out_.problems.emplace_back(error.what());
      if (error.code() == ErrorCode::kUnsupported) ++unsupported_;
      salvage(folder);
    }
    if (manifest_) {
      out_.target = manifest_->target;
      out_.mtp = manifest_->mtp;
    }
    if (out_.target.empty()) out_.target.repository = out_.traits.repository;
    out_.context = out_.config ? std::min(out_.traits.context, out_.config->max_positions) : 0;
  }

  /// Reads what it can of a folder that does not resolve; why it does not is a problem already.
  void salvage(const fs::path& folder) {
    out_.folder = folder;
    const auto try_to = [](const auto& action) {
      try {
        action();
      } catch (const Error&) {
        // The reason that resolving gave is this one or came before it.
      }
    };
    try_to([&] { out_.config = load_config(folder); });
    try_to([&] { manifest_ = load_manifest(folder); });
    std::string id = options_.model.model;
    if (find_traits(id) == nullptr && manifest_) id = manifest_->id;
    const ModelTraits* traits = find_traits(id);
    const Family family = out_.config ? out_.config->family : Family::kDense;
    const std::string name = fs::absolute(folder).lexically_normal().filename().string();
    out_.traits = traits != nullptr ? *traits : local_traits(name, family);
    out_.id = out_.traits.id;
  }

  void read_tokenizer() {
    const fs::path path = out_.folder / "tokenizer.json";
    if (!fs::exists(path)) return;  // resolving said so
    attempt([&] {
      const MappedFile file(path);
      out_.tokenizer = InspectedFile{"tokenizer.json", sha256_hex(file.bytes())};
      out_.tokenizer_vocabulary = Tokenizer::load(path)->vocabulary_size();
      if (out_.config && out_.tokenizer_vocabulary > out_.config->vocabulary) {
        fail_expected(ErrorCode::kCorruptData, path.string(),
                      fmt::format("ids below {} (vocab_size of config.json)", out_.config->vocabulary),
                      fmt::format("ids up to {}", out_.tokenizer_vocabulary - 1));
      }
    });
  }

  void read_template() {
    try {
      const ChatTemplate chat_template = load_chat_template(out_.folder);
      const bool own_file = fs::exists(out_.folder / "chat_template.jinja");
      out_.chat_template = InspectedFile{own_file ? "chat_template.jinja" : "tokenizer_config.json",
                                         sha256_hex(chat_template.source())};
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kNotFound) {
        out_.notes.emplace_back("there is no chat template: the model takes raw prompts only");
      } else {
        out_.problems.emplace_back(error.what());
      }
    }
  }

  void bind_weights() {
    if (!out_.config) return open_files();
    if (!options_.mtp_root.empty()) load_.mtp_root = options_.mtp_root;
    load_.experts = LoadOptions::Experts::kDescribe;
    const bool loads = attempt([&] {
      const std::vector<std::string> problems = list_load_problems(out_.folder, load_);
      out_.problems.insert(out_.problems.end(), problems.begin(), problems.end());
      if (problems.empty()) weights_ = load_host_weights(out_.folder, load_);
    });
    if (!loads || !weights_) return open_files();
    for (const auto& checkpoint : weights_->checkpoints) {
      const bool is_trunk = checkpoint == weights_->checkpoints.front();
      for (const TensorEntry& tensor : checkpoint->tensors()) {
        // A head's folder may be a whole checkpoint; only its head counts then.
        if (is_trunk || tensor.name.starts_with("mtp.") || tensor.name.starts_with("draft_lm_head."))
          tensors_.push_back(&tensor);
      }
    }
    out_.config = weights_->config;
    const LoadReport& report = weights_->report;
    out_.trunk_norms = report.trunk_norms;
    out_.head_norms = report.head_norms;
    out_.warnings.insert(out_.warnings.end(), report.warnings.begin(), report.warnings.end());
    out_.notes.insert(out_.notes.end(), report.notes.begin(), report.notes.end());
    out_.groups = tensor_groups(*weights_);
    describe_head();
    const MemoryLimits limits{.prefill_chunk = options_.prefill_chunk,
                              .verify_width = std::min(out_.traits.width, out_.traits.width_cap)};
    for (const int context : reported_contexts(out_.context, out_.config->max_positions))
      out_.memory.push_back(memory_needed(*weights_, context, limits, parse_backend(out_.exactness.backend)));
  }

  /// The headers alone, file by file, of a checkpoint that does not bind.
  void open_files() {
    std::vector<fs::path> paths = list_safetensors(out_.folder);
    for (const DraftHeadPlace& place : find_draft_head_files(out_.folder))
      paths.insert(paths.end(), place.files.begin(), place.files.end());
    std::sort(paths.begin(), paths.end());
    paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
    for (const fs::path& path : paths) {
      try {
        loose_files_.emplace_back(path);
      } catch (const Error& error) {
        // Binding may have met the same problem, in the same words.
        if (std::find(out_.problems.begin(), out_.problems.end(), error.what()) == out_.problems.end())
          out_.problems.emplace_back(error.what());
      }
    }
    for (const SafetensorsFile& file : loose_files_) {
      for (const TensorEntry& tensor : file.tensors()) tensors_.push_back(&tensor);
    }
    group_by_name();
  }

  /// Groups of unbound tensors: names without layer and expert numbers, dtypes as stored.
  void group_by_name() {
    static const std::regex kNumbers(R"((layers|experts)\.[0-9]+\.)");
    for (const TensorEntry* tensor : tensors_) {
      add_group(tensor->is_vision ? "vision" : std::regex_replace(tensor->name, kNumbers, ""), *tensor);
    }
  }

  void add_group(std::string name, const TensorEntry& tensor) {
    for (TensorGroup& group : out_.groups) {
      if (group.name != name || group.dtype != tensor.dtype || group.bits != 0) continue;
      ++group.count;
      group.bytes += tensor.bytes;
      return;
    }
    TensorGroup group;
    group.name = std::move(name);
    group.count = 1;
    group.dtype = tensor.dtype;
    group.bytes = tensor.bytes;
    out_.groups.push_back(std::move(group));
  }

  void find_receipt() {
    const auto receipt = find_passing_receipt(out_.folder, out_.id, options_.surroundings, out_.warnings);
    if (!receipt) return;
    if (receipt->counts_for(out_.fingerprint, receipt->backend)) {
      out_.qualification = fmt::format("{} ({})", receipt->backend, receipt->path.string());
    } else {
      out_.notes.push_back(fmt::format("{} is for other files", receipt->path.string()));
    }
  }

  void describe_head() {
    if (!weights_->head) return;
    InspectedHead head;
    head.place = name_of(weights_->report.head_place);
    head.path = weights_->report.head_path;
    if (weights_->head->vocabulary) head.vocabulary_rows = weights_->head->vocabulary->rows();
    head.shortlist = !weights_->head->draft_lm_head.empty();
    std::uint64_t most = 0;
    for (const TensorGroup& group : out_.groups) {
      if (!group.name.starts_with("mtp.") || group.bytes <= most) continue;
      most = group.bytes;
      head.dtype = name_of(group.dtype);
      head.bits = group.bits;
      head.group = group.group;
    }
    out_.head = std::move(head);
  }

  /// What the files hold, whether or not they bind.
  void describe_files() {
    for (const TensorEntry* tensor : tensors_) {
      ++out_.tensor_count;
      out_.tensor_bytes += tensor->bytes;
      if (tensor->is_vision && weights_) add_group("vision", *tensor);
      if (!options_.lists_tensors) continue;
      out_.tensors.push_back({tensor->name, std::string(name_of(tensor->dtype)), tensor->shape, tensor->bytes,
                              fs::relative(tensor->file->path(), out_.folder).string()});
    }
    if (!weights_) return;  // an identity must not depend on how far reading came
    const auto& checkpoints = weights_->checkpoints;
    const Checkpoint* head = checkpoints.size() > 1 ? checkpoints[1].get() : nullptr;
    attempt([&] { out_.fingerprint = fingerprint(*checkpoints.front(), head); });
    find_receipt();
  }

  void compare_checksums() {
    if (!manifest_ || manifest_->files.empty()) {
      if (!options_.needs_checksums) return;
      out_.problems.push_back(fmt::format("{}: expected a list of files to compare with, got none",
                                          (out_.folder / "mererun.json").string()));
      return;
    }
    ChecksumResult result =
        mererun::compare_checksums(out_.folder, *manifest_, [&](std::uint64_t done, std::uint64_t total) {
          return !progress_ || progress_("checksums", done, total);
        });
    out_.checksums_matched = result.matched;
    out_.is_stopped = result.is_stopped;
    out_.problems.insert(out_.problems.end(), result.problems.begin(), result.problems.end());
  }

  void scan_values() {
    const ValueScan scan = find_non_finite(tensors_, [&](std::uint64_t done, std::uint64_t total) {
      return !progress_ || progress_("verify", done, total);
    });
    out_.verified_tensors = scan.tensors;
    out_.is_stopped = scan.is_stopped;
    out_.problems.insert(out_.problems.end(), scan.problems.begin(), scan.problems.end());
  }

  const InspectionOptions& options_;
  const InspectionProgress& progress_;
  Inspection out_;
  std::optional<ModelManifest> manifest_;
  LoadOptions load_;
  std::optional<HostWeights> weights_;
  std::vector<SafetensorsFile> loose_files_;  // where the weights do not bind
  std::vector<const TensorEntry*> tensors_;   // of the trunk and its draft head
  std::size_t unsupported_ = 0;               // problems that are no fault of the checkpoint
};

}  // namespace

Inspection inspect_model(const InspectionOptions& options, const InspectionProgress& progress) {
  return Inspector(options, progress).run();
}

}  // namespace mererun
