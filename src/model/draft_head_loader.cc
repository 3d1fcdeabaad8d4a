#include "model/draft_head_loader.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "checkpoint/draft_head_files.h"
#include "model/flash_loader.h"
#include "model/layer_binder.h"
#include "model/norm_convention.h"
#include "model/weight_tables.h"

namespace mererun {

namespace fs = std::filesystem;

namespace {

HeadPlace place_of(DraftHeadPlaceKind kind) {
  switch (kind) {
    case DraftHeadPlaceKind::kRoot: return HeadPlace::kMtpRoot;
    case DraftHeadPlaceKind::kShards: return HeadPlace::kTargetShards;
    case DraftHeadPlaceKind::kBeside: return HeadPlace::kSidecarFile;
    case DraftHeadPlaceKind::kFolder: return HeadPlace::kSidecarFolder;
  }
  return HeadPlace::kNone;
}

/// The compact vocabulary of a head: as stated, else the standard one where the output matrix is its own.
std::optional<DraftVocabulary> draft_vocabulary(const LoadOptions& options, const ModelConfig& config) {
  if (options.draft_vocabulary) {
    return DraftVocabulary(*options.draft_vocabulary, config.vocabulary, "mererun.json: draft_vocabulary");
  }
  if (config.tied) return std::nullopt;
  return DraftVocabulary::standard(config.vocabulary);
}

/// The coarse matrix of the shortlist: 2 bits, groups of 64, rows in compact order.
LinearSource bind_shortlist(TensorBinder& binder, const HostWeights& weights, const HostDraftHead& head) {
  const std::string module = binder.has_prefix("mtp.draft_lm_head.") ? "mtp.draft_lm_head" : "draft_lm_head";
  if (!binder.has_prefix(module + ".")) return {};
  if (!head.vocabulary) {
    binder.problem(
        fmt::format("{}.weight: expected a compact draft vocabulary beside it, got none for {} tokens",
                    module, weights.config.vocabulary));
    binder.ignore(module);
    return {};
  }
  LinearSource source = binder.matrix(module, head.vocabulary->padded_rows(), weights.config.hidden);
  if (source.empty() || (source.format == WeightFormat::kAffine && source.bits == 2 && source.group == 64))
    return source;
  const std::string got = source.format == WeightFormat::kAffine ? to_string({source.bits, source.group})
                                                                 : std::string(name_of(source.dtype));
  binder.problem(fmt::format("{}.weight: expected 2-bit g64, got {}", module, got));
  return {};
}

}  // namespace

FoundHead find_draft_head(const fs::path& folder, const std::shared_ptr<const Checkpoint>& trunk,
                          const LoadOptions& options) {
  const auto open = [&](const DraftHeadPlace& place, HeadPlace kind) -> FoundHead {
    const bool shared = place.kind == DraftHeadPlaceKind::kShards;
    auto checkpoint = shared ? trunk : std::make_shared<const Checkpoint>(Checkpoint::open_sidecar(place));
    if (!checkpoint->holds_draft_head()) return {};
    return {kind, place.files.size() == 1 ? place.files.front() : place.folder, std::move(checkpoint)};
  };
  std::optional<fs::path> root;
  if (!options.mtp_root.empty()) root = options.mtp_root;
  for (const DraftHeadPlace& place : find_draft_head_files(folder, root)) {
    if (root && place.kind != DraftHeadPlaceKind::kRoot) {
      fail_expected(ErrorCode::kNotFound, root->string(), "a draft head (mtp.* tensors) in it or in its mtp/",
                    "none");
    }
    FoundHead found = open(place, place_of(place.kind));
    if (found.checkpoint != nullptr) return found;
  }
  for (const fs::path& companion : options.companions) {
    for (const DraftHeadPlace& place : find_draft_head_files(folder, companion)) {
      if (place.kind != DraftHeadPlaceKind::kRoot) break;
      FoundHead found = open(place, HeadPlace::kCompanion);
      if (found.checkpoint != nullptr) return found;
    }
  }
  return {};
}

void bind_draft_head(const FoundHead& found, TensorBinder& trunk, const LoadOptions& options,
                     HostWeights& weights, std::vector<std::string>& problems) {
  LoadReport& report = weights.report;
  report.head_place = found.place;
  report.head_path = found.path;
  HostDraftHead& head = weights.head.emplace();
  head.vocabulary = draft_vocabulary(options, weights.config);

  // Entries of the target's config speak of heads in its own folder only.
  const bool foreign = found.place == HeadPlace::kMtpRoot || found.place == HeadPlace::kCompanion;
  TensorBinder binder(found.checkpoint, weights.config.quantization,
                      foreign ? TensorBinder::Precision::kShapesOnly : TensorBinder::Precision::kEntriesOnly,
                      problems);
  LayerBinder layers(binder, weights.config, options.experts, report);
  const std::string prefix = "mtp.";
  const std::string layer = prefix + "layers.0.";
  if (weights.config.flash) {
    bind_flash_head(layers, prefix, options, head);
    bind_flash_layer(layers, layer, LayerKind::kAttention, false, options, head.layer);
  } else {
    layers.bind_matrices(prefix, draft_head_matrices(weights.config), head);
    layers.bind_vectors(prefix, draft_head_vectors(weights.config), head);
  }
  layers.bind_layer(layer, LayerKind::kAttention, head.layer);
  head.draft_lm_head = bind_shortlist(binder, weights, head);
  if (head.draft_lm_head.empty() && found.checkpoint.get() != &trunk.checkpoint()) {
    head.draft_lm_head = bind_shortlist(trunk, weights, head);
  }
  report.head_norms =
      settle_measured_norms(layers.norms(), options.mtp_norm_convention, "the head's", report);
  for (const std::string_view kind : {std::string_view("mtp."), std::string_view("draft_lm_head.")}) {
    binder.list_left_over({}, kind, report);
  }
  binder.finish(report);
  if (found.place != HeadPlace::kTargetShards) weights.checkpoints.push_back(found.checkpoint);
}

}  // namespace mererun
