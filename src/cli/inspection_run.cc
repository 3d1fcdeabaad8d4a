#include "cli/inspection_run.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/engine_setup.h"
#include "cli/exit_codes.h"

namespace mererun {

InspectionOptions inspection_options(const CommonOptions& options, const ProgramContext& context) {
  const EngineOptions engine = engine_options(options, context);
  InspectionOptions inspected;
  inspected.model = engine.model;
  inspected.surroundings = engine.surroundings;
  inspected.mtp_root = engine.mtp_root;
  inspected.backend = engine.backend;
  inspected.device = engine.device;
  inspected.prefill_chunk = engine.prefill_chunk;
  return inspected;
}

Inspection run_inspection(const InspectionOptions& inspected, const CommonOptions& options,
                          const ProgramContext& context) {
  ProgressDisplay display(progress_mode(options, context), context.terminal.stderr_columns);
  Inspection inspection =
      inspect_model(inspected, [&](std::string_view phase, std::uint64_t done, std::uint64_t total) {
        return show_bytes(display, context, phase, done, total);
      });
  display.finish();
  return inspection;
}

int exit_code_of(const Inspection& inspection) {
  if (inspection.is_stopped) return kExitInterrupted;
  const std::size_t count = inspection.problems.size();
  if (count == 0) return kExitDone;
  fail_expected(inspection.is_unsupported ? ErrorCode::kUnsupported : ErrorCode::kCorruptData,
                inspection.folder.string(),
                inspection.is_unsupported ? "a checkpoint that this build serves" : "a sound checkpoint",
                fmt::format("{} problem{} (listed above)", count, count == 1 ? "" : "s"));
}

}  // namespace mererun
