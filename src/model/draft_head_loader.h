#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model/host_weights.h"
#include "model/tensor_binder.h"

namespace mererun {

/// A place that holds a draft head, opened.
struct FoundHead {
  HeadPlace place = HeadPlace::kNone;
  std::filesystem::path path;                    // folder or file, for the report
  std::shared_ptr<const Checkpoint> checkpoint;  // the trunk's own for kTargetShards; null for kNone
};

/// Looks for the draft head of `folder` in this order: `options.mtp_root` with its mtp/; the target's shards;
/// mtp.safetensors, model-mtp.safetensors; mtp/; the companions. The first that holds any tensor of a head
/// wins. Internal to model/. Errors: kNotFound if `options.mtp_root` holds none; those of
/// Checkpoint::open_sidecar.
FoundHead find_draft_head(const std::filesystem::path& folder, const std::shared_ptr<const Checkpoint>& trunk,
                          const LoadOptions& options);

/// Binds a found head into `weights.head`. `trunk` is the binder of the trunk, which owns tensors of shards.
void bind_draft_head(const FoundHead& found, TensorBinder& trunk, const LoadOptions& options,
                     HostWeights& weights, std::vector<std::string>& problems);

}  // namespace mererun
