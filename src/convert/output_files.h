#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/plan.h"
#include "model/manifest.h"

namespace mererun {

/// config.json of the result: the source's, with the precision of the trunk's matrices under `quantization`
/// and its twin, and without the vision tower, which is not carried over.
std::string output_config(std::string_view source_config, const ConversionPlan& plan, AffineFormat main);

/// model.safetensors.index.json over the shards of the trunk.
std::string output_index(const ConversionPlan& plan);

/// mererun.json of the result. `files` are its files with their checksums; sources, draft vocabulary and
/// expectations come from the source's manifest.
std::string output_manifest(const ConversionPlan& plan, const std::string& id,
                            const std::optional<ModelManifest>& source, bool norms_are_final,
                            const std::vector<ModelManifest::File>& files);

/// The files beside the weights that a result takes over as they are: tokenizer, templates, generation
/// defaults, licence. Ascending by name.
std::vector<std::filesystem::path> companion_files(const std::filesystem::path& source);

}  // namespace mererun
