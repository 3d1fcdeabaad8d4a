#include "model/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/draft_head_files.h"

namespace mererun {

namespace fs = std::filesystem;

namespace {

bool is_path_spelling(std::string_view model) {
  return model.starts_with('/') || model.starts_with("./") || model.starts_with("../") || model == "." ||
         model == "..";
}

std::string folder_name(const fs::path& folder) {
  fs::path path = fs::absolute(folder).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.filename().string();
}

void require_complete(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    fail_expected(ErrorCode::kNotFound, folder.string(), "a checkpoint folder",
                  fs::exists(folder) ? "a file" : "no such folder");
  }
  const std::vector<std::string> missing = missing_files(folder);
  if (!missing.empty()) {
    fail_expected(ErrorCode::kNotFound, folder.string(), "a complete checkpoint folder",
                  fmt::format("one without {}", fmt::join(missing, ", ")));
  }
}

/// Whether the config is what the id says; `code` tells a wrong request from a wrong folder.
void require_geometry(const ModelTraits& traits, const ModelConfig& config, const fs::path& folder,
                      ErrorCode code) {
  const std::string where = fmt::format("{}/config.json", folder.string());
  if (traits.family != config.family) {
    fail_expected(code, where, fmt::format("the {} family of {}", name_of(traits.family), traits.id),
                  fmt::format("the {} family", name_of(config.family)));
  }
  const auto require = [&](std::string_view what, int expected, int got) {
    if (expected == 0 || expected == got) return;
    fail_expected(code, where, fmt::format("{} {} ({})", expected, what, traits.id), std::to_string(got));
  };
  require("layers", traits.layers, config.layers);
  require("as hidden size", traits.hidden, config.hidden);
  require("experts", traits.experts, config.experts);
  require("experts per token", traits.experts_per_token, config.experts_per_token);
}

std::vector<fs::path> companion_folders(std::string_view id, const std::vector<fs::path>& stores) {
  std::vector<fs::path> folders;
  const bool wanted = id.starts_with("text-agent-ornith-35b") || id.starts_with("vision-chat-ornith-35b");
  if (!wanted) return folders;
  for (const fs::path& store : stores) {
    const fs::path folder = store / kOrnithHeadId;
    if (fs::is_directory(folder) && !list_safetensors(folder).empty()) folders.push_back(folder);
  }
  return folders;
}

/// Fills in what follows from a folder; `stated` is the id the caller gave, empty if none.
ResolvedModel describe_folder(const fs::path& folder, std::string_view stated, ErrorCode code,
                              const std::vector<fs::path>& stores) {
  require_complete(folder);
  ResolvedModel model;
  model.folder = folder;
  model.config = load_config(folder);
  model.manifest = load_manifest(folder);
  std::string id(stated);
  if (id.empty() && model.manifest) {
    id = model.manifest->id;
    code = ErrorCode::kCorruptData;
  }
  const ModelTraits* traits = find_traits(id);
  if (traits != nullptr) {
    require_geometry(*traits, model.config, folder, code);
    model.traits = *traits;
  } else {
    if (!id.empty() && !id.starts_with("local:")) {
      model.warnings.push_back(
          fmt::format("{}/mererun.json: id \"{}\" is not a known model", folder.string(), id));
    }
    model.traits = local_traits(folder_name(folder), model.config.family);
  }
  model.id = model.traits.id;
  model.companions = companion_folders(model.id, stores);
  return model;
}

void require_runnable(std::string_view id) {
  if (id != kOrnithHeadId) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("--model: expected a model that can be run, got {} (a draft head)", id),
              "its folder is found by itself beside the Ornith models, or named with --mtp-root");
}

[[noreturn]] void fail_not_found(std::string_view id, const std::vector<fs::path>& stores,
                                 const std::vector<std::string>& incomplete) {
  std::vector<std::string> searched;
  for (const fs::path& store : stores) searched.push_back((store / id).string());
  const ModelTraits* traits = find_traits(id);
  std::string message =
      fmt::format("--model {}: expected {}, got nothing in: {}", id,
                  traits != nullptr ? "a complete folder of that name" : "a known id or a folder",
                  searched.empty() ? "no folder (MERERUN_MODELS is not set)"
                                   : fmt::format("{}", fmt::join(searched, ", ")));
  for (const std::string& folder : incomplete) message += "; " + folder;
  std::string hint;
  if (traits != nullptr) {
    hint = traits->repository.empty() ? fmt::format("docs/models.md says where to obtain {}", id)
                                      : fmt::format("obtain {} from {}", id, traits->repository);
  } else {
    hint = fmt::format("the nearest known ids are {}", fmt::join(nearest_ids(id, 3), ", "));
  }
  throw Error(ErrorCode::kNotFound, message, hint);
}

ResolvedModel look_up(std::string_view id, const std::vector<fs::path>& stores) {
  std::vector<std::string> incomplete;
  for (const fs::path& store : stores) {
    const fs::path folder = store / id;
    if (!fs::is_directory(folder)) continue;
    const std::vector<std::string> missing = missing_files(folder);
    if (!missing.empty()) {
      incomplete.push_back(
          fmt::format("{} is incomplete: it lacks {}", folder.string(), fmt::join(missing, ", ")));
      continue;
    }
    ResolvedModel model = describe_folder(folder, id, ErrorCode::kCorruptData, stores);
    model.warnings.insert(model.warnings.begin(), incomplete.begin(), incomplete.end());
    return model;
  }
  fail_not_found(id, stores, incomplete);
}

}  // namespace

std::vector<fs::path> store_folders(const ModelSurroundings& surroundings) {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& folder) {
    if (!folder.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  };
  std::string_view rest = surroundings.models;
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    add(fs::path(rest.substr(0, colon)));
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  if (!surroundings.data_home.empty()) {
    add(fs::path(surroundings.data_home) / "mere.run" / "models");
  } else if (!surroundings.home.empty()) {
    add(fs::path(surroundings.home) / ".local" / "share" / "mere.run" / "models");
  }
  add(surroundings.bundled);
  return folders;
}

std::vector<std::string> missing_files(const fs::path& folder) {
  std::vector<std::string> missing;
  for (const char* name : {"config.json", "tokenizer.json"}) {
    if (!fs::is_regular_file(folder / name)) missing.emplace_back(name);
  }
  const std::vector<fs::path> files =
      fs::is_directory(folder) ? list_safetensors(folder) : std::vector<fs::path>();
  const bool has_weights = std::any_of(files.begin(), files.end(), [](const fs::path& file) {
    return !is_draft_head_filename(file.filename().string());
  });
  if (!has_weights) missing.emplace_back("*.safetensors");
  return missing;
}

ResolvedModel resolve_model(const ModelRequest& request, const ModelSurroundings& surroundings) {
  const std::vector<fs::path> stores = store_folders(surroundings);
  require_runnable(request.model);
  if (!request.root.empty()) {
    const bool known = find_traits(request.model) != nullptr || request.model.starts_with("local:");
    if (!request.model.empty() && !known) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("--model {}: expected a known id beside --model-root, got another name", request.model),
          fmt::format("the nearest known ids are {}", fmt::join(nearest_ids(request.model, 3), ", ")));
    }
    return describe_folder(request.root, request.model, ErrorCode::kInvalidArgument, stores);
  }
  if (request.model.empty())
    fail_expected(ErrorCode::kInvalidArgument, "--model", "an id or a folder", "nothing");
  if (is_path_spelling(request.model))
    return describe_folder(request.model, "", ErrorCode::kCorruptData, stores);
  if (find_traits(request.model) != nullptr) return look_up(request.model, stores);
  if (fs::is_directory(request.model))
    return describe_folder(request.model, "", ErrorCode::kCorruptData, stores);
  fail_not_found(request.model, stores, {});
}

LoadOptions ResolvedModel::load_options() const {
  LoadOptions options;
  options.companions = companions;
  if (manifest) manifest->apply_to(options);
  return options;
}

}  // namespace mererun
