#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_setup.h"
#include "cli/exit_codes.h"
#include "cli/interrupts.h"
#include "cli/json_output.h"
#include "cli/text_table.h"
#include "engine/model_inspection.h"

namespace mererun {
namespace {

std::string report_text(const Inspection& inspection) {
  TextTable table("ll");
  table.add({"folder", inspection.folder.string()});
  table.add({"files", inspection.checksums_matched
                          ? fmt::format("{} are as mererun.json says", *inspection.checksums_matched)
                          : std::string("no checksums to compare with (none in a mererun.json)")});
  table.add({"tensors", inspection.trunk_norms
                            ? fmt::format("{}, of the names, shapes and types that loading needs",
                                          inspection.tensor_count)
                            : std::string("do not load")});
  if (inspection.verified_tensors)
    table.add(
        {"values", fmt::format("{} tensors scanned for NaN and infinity", *inspection.verified_tensors)});
  std::string text = table.text();
  for (const std::string& problem : inspection.problems) text += fmt::format("problem: {}\n", problem);
  if (inspection.problems.empty() && !inspection.is_stopped) text += "sound\n";
  return text;
}

nlohmann::json report_json(const Inspection& inspection) {
  nlohmann::json report = {{"id", inspection.id},
                           {"path", inspection.folder.string()},
                           {"fingerprint", inspection.fingerprint},
                           {"tensors", inspection.tensor_count},
                           {"problems", inspection.problems},
                           {"pass", inspection.problems.empty() && !inspection.is_stopped}};
  if (inspection.checksums_matched) report["filesMatched"] = *inspection.checksums_matched;
  if (inspection.verified_tensors) report["tensorsScanned"] = *inspection.verified_tensors;
  return report;
}

}  // namespace

int run_model_verify(const ModelVerifyOptions& options, ProgramContext& context) {
  const EngineOptions engine = engine_options(options, context);
  InspectionOptions inspected{.model = engine.model,
                              .surroundings = engine.surroundings,
                              .mtp_root = engine.mtp_root,
                              .backend = engine.backend,
                              .compares_checksums = true,
                              .needs_checksums = false,
                              .scans_values = true};
  ProgressDisplay display(progress_mode(options, context), context.terminal.stderr_columns);
  const Inspection inspection =
      inspect_model(inspected, [&](std::string_view phase, std::uint64_t done, std::uint64_t total) {
        display.update({.phase = std::string(phase),
                        .unit = ProgressUnit::kBytes,
                        .done = static_cast<std::int64_t>(done),
                        .total = static_cast<std::int64_t>(total)});
        return !context.interrupts.requested();
      });
  display.finish();
  write_stdout(options.output.json ? json_text(report_json(inspection)) : report_text(inspection));
  if (inspection.is_stopped) return kExitInterrupted;
  if (inspection.problems.empty()) return kExitDone;
  fail_expected(inspection.is_unsupported ? ErrorCode::kUnsupported : ErrorCode::kCorruptData,
                inspection.folder.string(), "a sound checkpoint",
                fmt::format("{} problem{} (listed above)", inspection.problems.size(),
                            inspection.problems.size() == 1 ? "" : "s"));
}

}  // namespace mererun
