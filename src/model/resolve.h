#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/host_weights.h"
#include "model/manifest.h"
#include "model/traits.h"

namespace mererun {

/// The surroundings that say where models are kept. The program fills it; library code reads no environment.
struct ModelSurroundings {
  std::string models;             // MERERUN_MODELS: several folders separated by ':'
  std::string data_home;          // XDG_DATA_HOME
  std::string home;               // HOME
  std::filesystem::path bundled;  // the models beside the program; empty: none
};

/// The folders that may hold `<id>/`, in search order, without duplicates; they need not exist.
std::vector<std::filesystem::path> store_folders(const ModelSurroundings& surroundings);

/// What the user asked for: `--model` and `--model-root`, either may be empty.
struct ModelRequest {
  std::string model;
  std::string root;
};

/// A model that was found, before its weights are opened.
struct ResolvedModel {
  std::filesystem::path folder;
  std::string id;  // a known id or "local:<folder name>"
  ModelTraits traits;
  ModelConfig config;
  std::optional<ModelManifest> manifest;
  std::vector<std::filesystem::path> companions;  // folders that hold only a head for this id
  std::vector<std::string> warnings;              // incomplete folders that were skipped

  /// Load options that follow from the manifest and the id.
  LoadOptions load_options() const;
};

/// What a checkpoint folder lacks ("tokenizer.json"); empty if it is complete.
std::vector<std::string> missing_files(const std::filesystem::path& folder);

/// Finds the folder, id and traits of a model. A root is the folder itself, and the model then says whose
/// traits apply; a model alone is a known id, looked up in every store, or a path. The first complete folder
/// wins.
///
/// Errors: kNotFound listing every folder searched, the nearest known ids and where a known id is obtained;
///         kInvalidArgument if family, layer count, hidden size or experts of config.json contradict the id,
///         or if the id can't be run; and those of load_config and load_manifest.
[[nodiscard]] ResolvedModel resolve_model(const ModelRequest& request, const ModelSurroundings& surroundings);

}  // namespace mererun
