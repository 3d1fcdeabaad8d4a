#include "convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/fingerprint.h"
#include "convert/journal.h"
#include "convert/output_files.h"
#include "convert/plan.h"
#include "model/config.h"
#include "model/host_weights.h"
#include "model/manifest.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.good() && !stream.eof())
    fail_expected(ErrorCode::kIo, path.string(), "a readable file", "an error");
  return text;
}

/// The source, opened, with what a conversion has to know about it.
struct Source {
  std::shared_ptr<const Checkpoint> trunk;
  std::shared_ptr<const Checkpoint> head;  // outside the trunk's files, or null
  std::optional<ModelManifest> manifest;
  ModelConfig config;
  NormConvention trunk_norms = NormConvention::kFinal;
  std::optional<NormConvention> head_norms;
  std::optional<DraftVocabulary> draft_vocabulary;
};

LoadOptions load_options(const ConversionOptions& options, const std::optional<ModelManifest>& manifest) {
  LoadOptions load;
  load.experts = LoadOptions::Experts::kDescribe;
  load.mtp_root = options.mtp_root;
  if (manifest) manifest->apply_to(load);
  return load;
}

/// A source must be unquantised before anything else is said about it: its shapes would not fit.
void refuse_quantised(const Checkpoint& trunk) {
  for (const TensorEntry& tensor : trunk.tensors()) {
    if (!tensor.name.ends_with(".scales") && tensor.dtype != DType::kF8E4M3) continue;
    fail_expected(ErrorCode::kUnsupported, tensor.stored_name,
                  "a BF16, F16 or F32 checkpoint that is not quantised yet", describe(tensor));
  }
}

Source open_source(const ConversionOptions& options) {
  if (!fs::is_directory(options.source))
    fail_expected(ErrorCode::kNotFound, options.source.string(), "a checkpoint folder", "no such folder");
  const Checkpoint trunk = Checkpoint::open(options.source);
  (void)load_config(options.source);  // what it says comes before what the tensors are
  std::optional<ModelManifest> manifest = load_manifest(options.source);
  refuse_quantised(trunk);
  const HostWeights described = load_host_weights(options.source, load_options(options, manifest));
  const auto& opened = described.checkpoints;
  Source source{.trunk = opened.front(),
                .head = opened.size() > 1 ? opened.back() : nullptr,
                .manifest = std::move(manifest),
                .config = described.config,
                .trunk_norms = described.report.trunk_norms,
                .head_norms = described.report.head_norms,
                .draft_vocabulary = {}};
  if (described.head) source.draft_vocabulary = described.head->vocabulary;
  return source;
}

ConversionPlan plan_of(const Source& source, const Recipe& recipe, const ConversionOptions& options) {
  return make_plan({.trunk = *source.trunk,
                    .head = source.head.get(),
                    .config = source.config,
                    .recipe = recipe,
                    .trunk_norms = source.trunk_norms,
                    .head_norms = source.head_norms,
                    .draft_vocabulary = source.draft_vocabulary,
                    .max_shard_bytes = options.max_shard_bytes});
}

/// What an unfinished folder must have in common with a run that goes on in it.
std::string plan_identity(const Source& source, const ConversionPlan& plan,
                          const ConversionOptions& options) {
  Sha256 hash;
  hash.update(std::string_view("conversion 1\n"));
  hash.update(fingerprint(*source.trunk, source.head.get()));
  hash.update(options.id + "\n" + options.recipe.profile + "\n");
  for (const PlannedShard& shard : plan.shards) {
    hash.update(shard.file + "\n");
    for (const PlannedTensor& t : shard.tensors) {
      hash.update(t.name + " " + describe_type(t.dtype, t.shape) +
                  (t.format ? " " + to_string(*t.format) : std::string()) + (t.adds_one ? " +1\n" : "\n"));
    }
  }
  return hash.finish_hex();
}

void require_room(const fs::path& folder, std::uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= bytes) return;
  fail_expected(ErrorCode::kIo, folder.string(), fmt::format("{} bytes of free disk space", bytes),
                fmt::format("{}", space.available));
}

/// `path` as text without a final separator, so that a suffix can follow.
fs::path plain(const fs::path& path) {
  fs::path result = fs::absolute(path).lexically_normal();
  return result.has_filename() ? result : result.parent_path();
}

class Conversion {
 public:
  Conversion(const ConversionOptions& options, const Source& source, const Recipe& recipe,
             const ConversionPlan& plan, const ConversionProgress& progress)
      : options_(options),
        source_(source),
        recipe_(recipe),
        plan_(plan),
        progress_(progress),
        output_(plain(options.output)),
        work_(output_.string() + ".converting"),
        pool_(options.threads) {}

  ConversionReport run() {
    try {
      fs::create_directories(work_);
      ConversionJournal journal(work_, plan_identity(source_, plan_, options_));
      write_shards(journal);
      write_texts();
      write_manifest(journal);
      bind_result();
      journal.remove();
    } catch (const Error& error) {
      const bool can_resume = error.code() == ErrorCode::kIo || error.code() == ErrorCode::kCancelled;
      if (!can_resume || !error.hint().empty()) throw;
      throw Error(error.code(), error.what(), fmt::format("the same command goes on from {}", work_.string()),
                  error.location());
    } catch (const fs::filesystem_error& error) {
      fail_expected(ErrorCode::kIo, work_.string(), "a folder that can be written", error.code().message());
    }
    fs::rename(work_, output_);
    return report();
  }

 private:
  bool advance(std::uint64_t bytes) {
    done_ += bytes;
    return !progress_ || progress_(done_, 2 * plan_.source_bytes);
  }

  static std::uint64_t source_bytes(const PlannedShard& shard) {
    std::uint64_t bytes = 0;
    for (const PlannedTensor& tensor : shard.tensors) bytes += tensor.source.bytes();
    return bytes;
  }

  void write_shards(ConversionJournal& journal) {
    std::uint64_t missing = 0;
    for (const PlannedShard& shard : plan_.shards) {
      if (is_done(journal, shard)) continue;
      for (const PlannedTensor& tensor : shard.tensors) missing += tensor.bytes();
    }
    require_room(work_, missing);
    const ChunkProgress chunk = [this](std::uint64_t bytes) { return advance(bytes); };
    for (const PlannedShard& shard : plan_.shards) {
      const fs::path path = work_ / shard.file;
      if (is_done(journal, shard)) {
        ++report_.resumed_shards;
        add_errors(journal.find(shard.file)->errors);
        if (!advance(2 * source_bytes(shard)))
          throw Error(ErrorCode::kCancelled, "convert: stopped by the caller");
        continue;
      }
      fs::create_directories(path.parent_path());
      const fs::path fresh = path.string() + ".part";
      write_shard(fresh, shard, pool_, chunk);
      ShardCheck check = check_shard(fresh, shard, pool_, chunk);
      fs::rename(fresh, path);
      add_errors(check.errors);
      journal.add(shard.file, std::move(check));
    }
  }

  /// Whether an earlier run finished a shard and the file is still what it was; asked once a shard.
  bool is_done(const ConversionJournal& journal, const PlannedShard& shard) {
    if (const auto known = kept_.find(shard.file); known != kept_.end()) return known->second;
    const ShardCheck* check = journal.find(shard.file);
    std::error_code error;
    const bool done = check != nullptr && fs::file_size(work_ / shard.file, error) == check->bytes &&
                      !error && file_sha256(work_ / shard.file) == check->sha256;
    return kept_[shard.file] = done;
  }

  void add_errors(const ErrorTable& errors) {
    for (const auto& [format, error] : errors) report_.precisions[format].add(error);
  }

  void write_texts() {
    texts_ = {{"config.json", output_config(text_of(options_.source / "config.json"), plan_, recipe_.main())},
              {"model.safetensors.index.json", output_index(plan_)}};
    for (const fs::path& path : companion_files(options_.source))
      texts_.emplace_back(path.filename().string(), text_of(path));
    for (const auto& [name, text] : texts_) write_text_file(work_ / name, text);
  }

  void write_manifest(const ConversionJournal& journal) {
    std::vector<ModelManifest::File> files;
    for (const auto& [name, text] : texts_) files.push_back({name, text.size(), sha256_hex(text)});
    for (const PlannedShard& shard : plan_.shards) {
      const ShardCheck& check = *journal.find(shard.file);
      files.push_back({shard.file, check.bytes, check.sha256});
    }
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    const bool norms_are_final = source_.config.family != Family::kFlashNext;
    write_text_file(work_ / "mererun.json",
                    output_manifest(plan_, options_.id, source_.manifest, norms_are_final, files));
  }

  /// Loading is the last judge of names, shapes and precisions.
  void bind_result() {
    const std::vector<std::string> problems =
        list_load_problems(work_, load_options({}, load_manifest(work_)));
    if (!problems.empty())
      fail_expected(ErrorCode::kInternal, work_.string(), "a checkpoint that loads", problems.front());
    report_.is_loadable = true;
  }

  ConversionReport report() {
    report_.source = options_.source;
    report_.output = output_;
    report_.profile = options_.recipe.profile;
    report_.main = recipe_.main();
    report_.source_bytes = plan_.source_bytes;
    report_.output_bytes = plan_.bytes;
    report_.shards = static_cast<int>(plan_.shards.size());
    report_.has_head = plan_.has_head;
    report_.draft_rows = plan_.draft_rows;
    report_.vision_tensors = plan_.vision_tensors;
    if (!plan_.has_head) report_.notes.push_back("the source has no draft head: the result can't draft");
    if (!fs::exists(output_ / "tokenizer.json"))
      report_.notes.push_back("the source has no tokenizer.json: the result is not complete without one");
    if (plan_.vision_tensors > 0)
      report_.notes.push_back(
          fmt::format("{} tensors of the vision tower are left out", plan_.vision_tensors));
    return std::move(report_);
  }

  const ConversionOptions& options_;
  const Source& source_;
  const Recipe& recipe_;
  const ConversionPlan& plan_;
  const ConversionProgress& progress_;
  fs::path output_;
  fs::path work_;
  ThreadPool pool_;
  std::uint64_t done_ = 0;
  std::map<std::string, bool> kept_;
  std::vector<std::pair<std::string, std::string>> texts_;  // files beside the weights: name, content
  ConversionReport report_;
};

}  // namespace

ConversionReport convert_checkpoint(const ConversionOptions& options, const ConversionProgress& progress) {
  if (fs::exists(fs::symlink_status(plain(options.output))))
    fail_expected(ErrorCode::kInvalidArgument, options.output.string(), "a folder that does not exist yet",
                  "one that exists");
  const Source source = open_source(options);
  const Recipe recipe(options.recipe, source.config);
  const ConversionPlan plan = plan_of(source, recipe, options);
  return Conversion(options, source, recipe, plan, progress).run();
}

double bits_per_weight(const ConversionReport& report) {
  double bits = 0;
  double weights = 0;
  for (const auto& [format, error] : report.precisions) {
    const auto count = static_cast<double>(error.weights);
    bits += count * (format.first + 32.0 / format.second);  // a BF16 scale and a BF16 bias a group
    weights += count;
  }
  return weights > 0 ? bits / weights : 0;
}

nlohmann::ordered_json conversion_json(const ConversionReport& report) {
  nlohmann::ordered_json precisions = nlohmann::ordered_json::array();
  for (const auto& [format, error] : report.precisions) {
    precisions.push_back({{"bits", format.first},
                          {"groupSize", format.second},
                          {"weights", error.weights},
                          {"relativeError", error.relative()}});
  }
  return {{"source", report.source.string()},
          {"output", report.output.string()},
          {"profile", report.profile},
          {"bits", report.main.bits},
          {"groupSize", report.main.group},
          {"bytes", {{"source", report.source_bytes}, {"output", report.output_bytes}}},
          {"bitsPerWeight", bits_per_weight(report)},
          {"precisions", precisions},
          {"shards", {{"total", report.shards}, {"resumed", report.resumed_shards}}},
          {"draftHead", {{"found", report.has_head}, {"coarseRows", report.draft_rows}}},
          {"visionTensors", report.vision_tensors},
          {"loadable", report.is_loadable},
          {"notes", report.notes}};
}

}  // namespace mererun
