#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_setup.h"
#include "cli/exit_codes.h"
#include "cli/interrupts.h"
#include "cli/json_output.h"
#include "cli/qualification_report.h"
#include "cli/report_parts.h"
#include "engine/qualification.h"
#include "engine/qualification_receipt.h"

namespace mererun {
namespace {

using Json = nlohmann::json;

/// Room for the few snapshots of two long prompts, also of the largest models.
constexpr std::size_t kCacheBytes = std::size_t{4} << 30;

std::string value_text(const QualificationValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "yes" : "no";
  if (const auto* text = std::get_if<std::string>(&value))
    return text->find(' ') == std::string::npos ? *text : "\"" + *text + "\"";
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{:.3f}", *number);
  return fmt::format("{}", std::get<std::int64_t>(value));
}

void write_receipt(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  if (!file.flush())
    fail_expected(ErrorCode::kIo, path.string(), "a file that can be written", std::strerror(errno));
}

/// A receipt that cannot be written is better known before an hour of work.
void check_receipt(const std::optional<std::string>& receipt) {
  if (!receipt) return;
  const std::filesystem::path path(*receipt);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return;
  const std::filesystem::path folder =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, ignored))
    fail_expected(ErrorCode::kIo, "--receipt", "an existing folder, or a file in one", *receipt);
}

/// A new folder under the system's temporary one for a cache on disk, removed at the end with all it holds.
class CacheFolder {
 public:
  CacheFolder() {
    std::error_code failed;
    std::string pattern = (std::filesystem::temp_directory_path(failed) / "mererun-qualify-XXXXXX").string();
    if (!failed && ::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~CacheFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  /// Empty where none could be made.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

QualificationOptions qualification_options(const Engine& engine) {
  QualificationOptions out;
  out.widths = engine.resolved().config.family == Family::kFlashNext ? std::vector<int>{1, 4, 8, 16, 32}
                                                                     : std::vector<int>{1, 4, 8, 9};
  if (engine.resolved().manifest)
    out.expects_retrieval = engine.resolved().manifest->expects_retrieval.value_or(true);
  return out;
}

}  // namespace

Json qualification_json(const QualificationContext& context, const QualificationReport& report) {
  Json steps = Json::array();
  for (const QualificationStep& step : report.steps) {
    Json details = Json::object();
    for (const auto& [name, value] : step.details)
      std::visit([&, &key = name](const auto& v) { details[key] = v; }, value);
    Json entry{{"name", step.name}, {"details", std::move(details)}};
    if (step.pass) entry["pass"] = *step.pass;
    steps.push_back(std::move(entry));
  }
  return {{"model", context.model},
          {"fingerprint", context.fingerprint},
          {"build", build_json(context.build)},
          {"backend", context.backend},
          {"device", device_json(context.device)},
          {"contractVersion", kNumericContractVersion},
          {"steps", std::move(steps)},
          {"pass", report.pass()}};
}

std::string qualification_step_text(const QualificationStep& step) {
  std::string text = fmt::format("{:<22}  {}", step.name,
                                 !step.pass   ? "not run"
                                 : *step.pass ? "pass"
                                              : "FAIL");
  for (const auto& [name, value] : step.details) text += fmt::format("  {}={}", name, value_text(value));
  return text + "\n";
}

std::filesystem::path receipt_path(const std::filesystem::path& path, const std::string& model) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? path / receipt_file_name(model) : path;
}

int run_model_qualify(const ModelQualifyOptions& options, ProgramContext& context) {
  check_receipt(options.receipt);
  EngineOptions settings = engine_options(options, context);
  settings.process.speculation = Speculation::kOn;  // also for a model that drafts only when asked
  settings.requires_draft_head = true;
  settings.prefix_cache_bytes = kCacheBytes;
  const CacheFolder folder;  // outlives the engine
  if (is_disk_store_built()) settings.prefix_cache_dir = folder.path();
  auto engine = load_engine(settings, options, context);
  QualificationOptions plan = qualification_options(*engine);
  if (!is_disk_store_built()) {
    plan.no_restart = "this build keeps no prefix cache on disk";
  } else if (engine->disk_store() == nullptr) {
    plan.no_restart = "no temporary folder for a prefix cache on disk";
  } else {
    plan.restart = [&]() -> Engine& {
      engine.reset();
      engine = load_engine(settings, options, context);
      return *engine;
    };
  }
  const bool json = options.output.json;
  const QualificationReport report =
      qualify(*engine, plan, context.interrupts.flag(), [&](const QualificationStep& step) {
        if (!json) write_stdout(qualification_step_text(step));
      });
  const QualificationContext about{.model = engine->resolved().id,
                                   .fingerprint = engine->fingerprint(),
                                   .build = describe_build(),
                                   .backend = std::string(engine->backend_name()),
                                   .device = describe_device(engine->model().ops())};
  const std::string text = json_text(qualification_json(about, report));
  if (json) {
    write_stdout(text);
  } else {
    write_stdout(fmt::format("{} {}\n", about.model, report.pass() ? "qualified" : "NOT qualified"));
  }
  if (options.receipt) write_receipt(receipt_path(*options.receipt, about.model), text);
  return report.pass() ? kExitDone : kExitNegativeVerdict;
}

}  // namespace mererun
