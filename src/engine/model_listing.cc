#include "engine/model_listing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "engine/qualification_receipt.h"
#include "model/host_weights.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// The precision that holds most bytes.
void describe_precision(const HostWeights& weights, ListedModel& model) {
  std::map<std::tuple<std::string, int, int>, std::uint64_t> bytes;
  for (const TensorGroup& group : tensor_groups(weights))
    bytes[{std::string(name_of(group.dtype)), group.bits, group.group}] += group.bytes;
  const auto most = std::max_element(bytes.begin(), bytes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != bytes.end()) std::tie(model.dtype, model.bits, model.group) = most->first;
}

std::uint64_t file_bytes(const HostWeights& weights) {
  std::uint64_t total = 0;
  for (const auto& checkpoint : weights.checkpoints) {
    for (const SafetensorsFile& file : checkpoint->files()) total += file.file().size();
  }
  return total;
}

void open_weights(const ResolvedModel& resolved, ListedModel& model) {
  try {
    LoadOptions options = resolved.load_options();
    options.experts = LoadOptions::Experts::kDescribe;
    const HostWeights weights = load_host_weights(resolved.folder, options);
    describe_precision(weights, model);
    model.bytes = file_bytes(weights);
    model.head_found = weights.head.has_value();
  } catch (const Error& error) {
    model.problem = error.what();
  }
}

ListedModel from_traits(const ModelTraits& traits) {
  ListedModel model;
  model.id = traits.id;
  model.traits = traits;
  model.bits = traits.bits;
  model.group = traits.group;
  model.dtype = traits.bits > 0 ? "U32" : traits.weights == "BF16" ? "BF16" : "unknown";
  model.context = traits.context;
  model.target.repository = traits.repository;
  return model;
}

ListedModel from_folder(const ResolvedModel& resolved, const ModelSurroundings& surroundings,
                        std::vector<std::string>& warnings) {
  ListedModel model = from_traits(resolved.traits);
  model.installed = true;
  model.folder = resolved.folder;
  model.context = std::min(resolved.traits.context, resolved.config.max_positions);
  if (resolved.manifest) {
    if (!resolved.manifest->target.empty()) model.target = resolved.manifest->target;
    model.mtp = resolved.manifest->mtp;
  }
  open_weights(resolved, model);
  if (const auto receipt = find_passing_receipt(resolved.folder, resolved.id, surroundings, warnings))
    model.qualification = receipt->path.string();
  return model;
}

/// The first complete folder of an id; empty if there is none.
fs::path complete_folder(const std::vector<fs::path>& stores, const std::string& id,
                         std::vector<std::string>& warnings) {
  for (const fs::path& store : stores) {
    const fs::path folder = store / id;
    if (!fs::is_directory(folder)) continue;
    const std::vector<std::string> missing = missing_files(folder);
    if (missing.empty()) return folder;
    warnings.push_back(
        fmt::format("{} is incomplete: it lacks {}", folder.string(), fmt::join(missing, ", ")));
  }
  return {};
}

void list_known(const ModelTraits& traits, const std::vector<fs::path>& stores, bool all,
                const ModelSurroundings& surroundings, ModelListing& listing) {
  const fs::path folder = complete_folder(stores, traits.id, listing.warnings);
  if (folder.empty()) {
    if (all) listing.models.push_back(from_traits(traits));
    return;
  }
  try {
    listing.models.push_back(from_folder(resolve_model({.model = traits.id, .root = ""}, surroundings),
                                         surroundings, listing.warnings));
  } catch (const Error& error) {
    ListedModel model = from_traits(traits);
    model.installed = true;
    model.folder = folder;
    model.problem = error.what();
    listing.models.push_back(std::move(model));
  }
}

/// Complete folders of the stores whose names are no known ids: usable by path.
void list_others(const std::vector<fs::path>& stores, const ModelSurroundings& surroundings,
                 ModelListing& listing) {
  std::vector<fs::path> folders;
  for (const fs::path& store : stores) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(store, error)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_directory(error) && find_traits(name) == nullptr && missing_files(entry.path()).empty())
        folders.push_back(entry.path());
    }
  }
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    try {
      listing.models.push_back(
          from_folder(resolve_model({.model = "", .root = folder.string()}, surroundings), surroundings,
                      listing.warnings));
    } catch (const Error& error) {
      listing.warnings.push_back(error.what());
    }
  }
}

Json repository_json(const RepositoryRevision& source) {
  if (source.empty()) return nullptr;
  Json out{{"repository", source.repository}, {"revision", nullptr}};
  if (!source.revision.empty()) out["revision"] = source.revision;
  return out;
}

}  // namespace

std::string_view name_of(MtpDefault mtp) { return mtp == MtpDefault::kOn ? "on" : "opt-in"; }

ModelListing list_models(const ModelSurroundings& surroundings, bool all) {
  ModelListing listing;
  listing.searched = store_folders(surroundings);
  for (const ModelTraits& traits : known_models())
    list_known(traits, listing.searched, all, surroundings, listing);
  list_others(listing.searched, surroundings, listing);
  return listing;
}

Json sources_json(const RepositoryRevision& target, const RepositoryRevision& mtp) {
  return {{"target", repository_json(target)}, {"mtp", repository_json(mtp)}};
}

Json listing_json(const ModelListing& listing) {
  Json models = Json::array();
  for (const ListedModel& model : listing.models) {
    const ModelTraits& t = model.traits;
    Json one{{"id", model.id},
             {"installed", model.installed},
             {"family", std::string(name_of(t.family))},
             {"dtype", model.dtype},
             {"mtpDefault", std::string(name_of(t.mtp))},
             {"promptThreshold", t.prompt_threshold},
             {"blockSize", t.width},
             {"blockSizeCap", t.width_cap},
             {"verifyWidthMax", t.certified_width},
             {"contextDefault", model.context},
             {"qualification", model.qualification},
             {"sources", sources_json(model.target, model.mtp)}};
    if (model.installed) one["path"] = model.folder.string();
    if (model.bits > 0) one["bits"] = model.bits;
    if (model.group > 0) one["groupSize"] = model.group;
    if (model.bytes) one["bytes"] = *model.bytes;
    if (model.head_found) one["headFound"] = *model.head_found;
    models.push_back(std::move(one));
  }
  return {{"models", std::move(models)}};
}

}  // namespace mererun
