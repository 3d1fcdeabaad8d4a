#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "model/resolve.h"

namespace mererun {

/// A known id, or a complete folder of a store that is no known id.
struct ListedModel {
  std::string id;
  ModelTraits traits;
  bool installed = false;

  // Of an installed one:
  std::filesystem::path folder;
  std::optional<std::uint64_t> bytes;  // of its weight files, the draft head's included
  std::optional<bool> head_found;      // no value: the checkpoint could not be opened
  std::string problem;                 // why not; empty if it could

  std::string dtype;  // of most weights: "U32" with bits, "BF16", ...; "unknown" if neither file nor id says
  int bits = 0;       // 0: not quantised, or unknown
  int group = 0;
  int context = 0;            // default, in positions
  RepositoryRevision target;  // empty: not stated
  RepositoryRevision mtp;
  /// Path of a passing receipt for the id, or "none". That it fits the files is checked at load, not here.
  std::string qualification = "none";
};

struct ModelListing {
  std::vector<ListedModel> models;    // known ids in table order, then other folders by path
  std::vector<std::string> warnings;  // incomplete folders
  std::vector<std::filesystem::path> searched;
};

/// Lists what the store folders hold, from headers only; `all` adds the known ids that are not installed. A
/// checkpoint with problems is listed with the first of them, not thrown.
ModelListing list_models(const ModelSurroundings& surroundings, bool all);

/// {models: [{id, installed, path?, family, bits?, groupSize?, dtype, bytes?, mtpDefault, promptThreshold,
/// headFound?, blockSize, blockSizeCap, verifyWidthMax, contextDefault, qualification, sources}]}.
nlohmann::json listing_json(const ModelListing& listing);

/// {target, mtp}, each {repository, revision} or null.
nlohmann::json sources_json(const RepositoryRevision& target, const RepositoryRevision& mtp);

/// "on" or "opt-in".
std::string_view name_of(MtpDefault mtp);

}  // namespace mererun
