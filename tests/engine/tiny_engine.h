#pragma once

#include <filesystem>
#include <memory>

#include "engine/engine.h"
#include "tests/support/temp_folder.h"

namespace mererun::testing {

/// Options that load a checkpoint folder with drafting on and a fixed draft cost (no start-up measurement).
EngineOptions engine_options_for(const std::filesystem::path& folder, std::size_t prefix_cache_bytes);

/// Puts the bundled tokenizer and template into a folder.
void add_tokenizer(const std::filesystem::path& folder);

/// A folder with the weights of `checkpoint` and the bundled tokenizer and template beside them. The ids of a
/// tiny model mean nothing as text: prompts for it are ids.
std::filesystem::path with_tokenizer(const TempFolder& temp, const std::filesystem::path& checkpoint);

/// A made-up dense model of four small layers with room for `max_positions`, in a folder with a tokenizer.
std::filesystem::path tiny_checkpoint_folder(const TempFolder& temp, int max_positions = 16384,
                                             bool moe = false);

}  // namespace mererun::testing
