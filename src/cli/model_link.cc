#include "engine/model_link.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/engine_setup.h"
#include "cli/exit_codes.h"
#include "cli/json_output.h"

namespace mererun {

int run_model_link(const ModelLinkOptions& options, ProgramContext& context) {
  const ModelLink made =
      link_model({.model = options.model.model.value_or(""), .root = *options.model.model_root},
                 model_surroundings(context));
  if (options.output.json) {
    write_stdout(json_text({{"id", made.id},
                            {"path", made.folder.string()},
                            {"link", made.link.string()},
                            {"wasThere", made.was_there}}));
  } else {
    write_stdout(fmt::format("{} {}: {} -> {}\n", made.id, made.was_there ? "was linked" : "is linked",
                             made.link.string(), made.folder.string()));
  }
  return kExitDone;
}

}  // namespace mererun
