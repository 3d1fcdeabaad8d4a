#pragma once

#include "cli/options.h"
#include "cli/program_context.h"
#include "engine/model_inspection.h"

namespace mererun {

/// What `model inspect` and `model verify` ask for in common: which model, and where it would run.
InspectionOptions inspection_options(const CommonOptions& options, const ProgramContext& context);

/// inspect_model with a progress display on stderr; Ctrl-C stops the reading.
Inspection run_inspection(const InspectionOptions& inspected, const CommonOptions& options,
                          const ProgramContext& context);

/// The exit status of an inspection whose report is written.
/// Errors: kUnsupported or kCorruptData if it found problems.
int exit_code_of(const Inspection& inspection);

}  // namespace mererun
