#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "cli/options.h"
#include "cli/program_context.h"
#include "cli/progress.h"
#include "engine/engine.h"

namespace mererun {

struct SyntheticOptions;

/// Options of the engine as flags and variables say them. Errors: kInvalidArgument.
EngineOptions engine_options(const CommonOptions& options, const ProgramContext& context);

/// Where ids are looked up, as the environment says.
ModelSurroundings model_surroundings(const ProgramContext& context);

/// Loads with a progress display on stderr, and logs what loading had to say.
std::unique_ptr<Engine> load_engine(const EngineOptions& options, const CommonOptions& common,
                                    const ProgramContext& context);

/// Budget of the prefix cache: MERERUN_PREFIX_CACHE_BYTES, else `otherwise`.
std::size_t prefix_cache_bytes(const ProgramContext& context, std::size_t otherwise);

/// How progress is shown: a bar on a terminal, lines elsewhere, nothing when quiet.
ProgressDisplay::Mode progress_mode(const CommonOptions& options, const ProgramContext& context);

/// Shows how many bytes of a phase are done. False once Ctrl-C was pressed.
bool show_bytes(ProgressDisplay& display, const ProgramContext& context, std::string_view phase,
                std::uint64_t done, std::uint64_t total);

/// The synthetic model that the flags describe; they name a geometry. Ctrl-C ends its making.
SyntheticOptions synthetic_options(const SyntheticFlags& flags, const EngineOptions& settings,
                                   const ProgramContext& context);

/// Sampling of a request: flag, else the model's generation_config.json, else 0.7 / 0.9 / off / off. A random
/// seed where none is named.
SamplingOptions sampling_options(const SamplingFlags& flags, const ModelConfig& config);

}  // namespace mererun
