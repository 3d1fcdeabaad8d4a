#include "model/model.h"

#include <utility>

namespace mererun {

Model::Model(std::unique_ptr<Ops> ops, HostWeights host, const ModelLimits& limits,
             const LoadProgress& progress)
    : ops_(std::move(ops)),
      host_(std::move(host)),
      weights_(prepare_weights(*ops_, host_, progress)),
      limits_(limits),
      activations_(*ops_, host_.config, limits.max_rows, limits.max_logit_rows),
      rope_(*ops_, host_.config.rope),
      geometry_(state_geometry(host_.config, weights_.head.has_value())),
      pools_(StatePools::create(*ops_, geometry_)),
      form_(make_residual_form(*ops_, host_.config, weights_, activations_)),
      decoder_(*ops_, host_.config, weights_, activations_, rope_, *form_) {
  if (weights_.head) head_.emplace(*ops_, host_.config, weights_, activations_, rope_, *form_);
}

std::unique_ptr<Model> Model::load(const std::filesystem::path& folder, const LoadOptions& options,
                                   std::unique_ptr<Ops> ops, const ModelLimits& limits,
                                   const LoadProgress& progress) {
  return std::make_unique<Model>(std::move(ops), load_host_weights(folder, options), limits, progress);
}

}  // namespace mererun
