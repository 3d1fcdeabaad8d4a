#pragma once

#include <string>

#include "model/host_weights.h"
#include "model/layer_binder.h"

namespace mererun {

// Binds what only Flash-Next checkpoints hold. Internal to model/. Problems are listed by the binder.

/// The hyper-connections of a layer, the indexer of an attention layer, and the n-gram layer.
void bind_flash_layer(LayerBinder& layers, const std::string& prefix, LayerKind kind, bool has_ngram,
                      const LoadOptions& options, HostLayer& weights);
/// The mixer that takes the place of a final norm, at `prefix`.
void bind_stream_mixer(LayerBinder& layers, const std::string& prefix, HostHyperConnection& mixer);
/// The draft head's own parts beside its layer; `head.flash` is made.
void bind_flash_head(LayerBinder& layers, const std::string& prefix, const LoadOptions& options,
                     HostDraftHead& head);

}  // namespace mererun
