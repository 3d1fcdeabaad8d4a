#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/engine_setup.h"
#include "cli/exit_codes.h"
#include "cli/json_output.h"
#include "cli/text_table.h"
#include "engine/model_listing.h"

namespace mererun {
namespace {

std::string where_text(const ListedModel& model) {
  if (model.installed) return model.folder.string();
  if (model.target.empty()) return "not installed; docs/models.md says what it is";
  return fmt::format("not installed; from {} {}", model.target.repository, model.target.revision);
}

std::string head_text(const ListedModel& model) {
  if (!model.head_found) return model.installed ? "?" : "-";
  return *model.head_found ? "yes" : "no";
}

std::string table_text(const ModelListing& listing) {
  TextTable table("lllrlrll");
  table.add({"id", "family", "weights", "size", "drafts", "W", "head", "folder"});
  for (const ListedModel& model : listing.models) {
    const std::string precision =
        model.bits > 0 ? fmt::format("Q{} g{}", model.bits, model.group) : model.dtype;
    table.add({model.id, std::string(name_of(model.traits.family)),
               model.installed ? precision : model.traits.weights,
               model.bytes ? byte_text(*model.bytes) : "-", std::string(name_of(model.traits.mtp)),
               fmt::format("{}/{}", model.traits.width, model.traits.width_cap), head_text(model),
               where_text(model)});
  }
  return table.text();
}

}  // namespace

int run_model_list(const ModelListOptions& options, ProgramContext& context) {
  const ModelListing listing = list_models(model_surroundings(context), options.all);
  for (const std::string& warning : listing.warnings) log(LogLevel::kWarn, "list", "warning=\"{}\"", warning);
  for (const ListedModel& model : listing.models) {
    if (!model.problem.empty())
      log(LogLevel::kWarn, "list", "model={} problem=\"{}\"", model.id, model.problem);
  }
  if (options.output.json) {
    write_stdout(json_text(listing_json(listing)));
  } else if (!listing.models.empty()) {
    write_stdout(table_text(listing));
  } else {
    std::string text = "no model is installed; searched:\n";
    for (const auto& folder : listing.searched) text += fmt::format("  {}\n", folder.string());
    write_stdout(text);
  }
  return kExitDone;
}

}  // namespace mererun
