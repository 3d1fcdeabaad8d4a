#include "engine/model_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <system_error>

#include "base/error.h"

namespace mererun {

namespace fs = std::filesystem;

ModelLink link_model(const ModelRequest& request, const ModelSurroundings& surroundings) {
  const ResolvedModel model = resolve_model(request, surroundings);
  const auto missing = missing_files(model.folder);
  if (!missing.empty())
    fail_expected(ErrorCode::kCorruptData, model.folder.string(), "a complete checkpoint folder",
                  fmt::format("one without {}", fmt::join(missing, ", ")));
  if (find_traits(model.id) == nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: expected a known id, by --model or its mererun.json, got {}",
                            model.folder.string(), model.id),
                "model list --all shows the known ids");
  const std::vector<fs::path> stores = store_folders(surroundings);
  if (stores.empty() || stores.front() == surroundings.bundled)
    fail_expected(ErrorCode::kInvalidArgument, "model link",
                  "MERERUN_MODELS, XDG_DATA_HOME or HOME to name a folder of models", "none of them");
  ModelLink result{.id = model.id,
                   .folder = fs::canonical(model.folder),
                   .link = stores.front() / model.id,
                   .was_there = false};
  std::error_code error;
  if (fs::exists(fs::symlink_status(result.link))) {
    result.was_there = fs::equivalent(result.link, result.folder, error);
    if (result.was_there) return result;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: expected nothing of that name, got another checkpoint or link",
                            result.link.string()),
                "remove it first");
  }
  fs::create_directories(stores.front(), error);
  if (!error) fs::create_directory_symlink(result.folder, result.link, error);
  if (error) fail_expected(ErrorCode::kIo, result.link.string(), "a link that can be made", error.message());
  return result;
}

}  // namespace mererun
