#pragma once

#include <filesystem>
#include <string>

#include "model/resolve.h"

namespace mererun {

struct ModelLink {
  std::string id;
  std::filesystem::path folder;  // of the checkpoint, absolute
  std::filesystem::path link;    // <store>/<id>
  bool was_there = false;        // the link existed and points at the folder
};

/// Enters a checkpoint folder into the first store, as a symbolic link named by its id, so that the id alone
/// finds it. The request names the folder as its root, and the id unless the folder's mererun.json states
/// one.
///
/// Errors: kInvalidArgument if no known id is given or stated, if the folder's geometry is another one's, or
/// if something else is in that place already; kNotFound if there is no such folder; kCorruptData if it is
/// not complete; kIo.
ModelLink link_model(const ModelRequest& request, const ModelSurroundings& surroundings);

}  // namespace mererun
