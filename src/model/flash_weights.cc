#include "model/flash_weights.h"

namespace mererun {

HyperConnectionWeights convert(WeightConverter& to, const HostHyperConnection& host) {
  HyperConnectionWeights out{
      .norm = to.vector(host.norm), .down = to.linear(host.down), .up = to.linear(host.up), .inject = {}};
  if (!host.inject.empty()) out.inject = to.linear(host.inject);
  return out;
}

namespace {

NgramWeights convert(WeightConverter& to, const HostNgram& host, const ModelConfig& config) {
  return {.key = to.linear(host.key),
          .value = to.linear(host.value),
          .norm_key = to.vector(host.norm_key),
          .norm_query = to.vector(host.norm_query),
          .norm_conv = to.vector(host.norm_conv),
          .conv = to.conv(host.conv, config.residual_dim(), config.flash->ngram_conv_kernel),
          .table = std::make_shared<NgramTable>(*config.flash, host.table)};
}

}  // namespace

FlashLayerWeights convert(WeightConverter& to, const HostFlashLayer& host, const ModelConfig& config) {
  FlashLayerWeights out{.mixer_connection = convert(to, host.mixer_connection),
                        .feed_forward_connection = convert(to, host.feed_forward_connection),
                        .indexer = {},
                        .ngram = {}};
  if (host.indexer)
    out.indexer = {to.linear(host.indexer->qk), to.vector(host.indexer->q_norm),
                   to.vector(host.indexer->k_norm)};
  if (host.ngram) out.ngram = convert(to, *host.ngram, config);
  return out;
}

FlashHeadWeights convert(WeightConverter& to, const HostFlashHead& host) {
  return {.fc_embedding = to.linear(host.fc_embedding),
          .fc_hidden = to.linear(host.fc_hidden),
          .mixer = convert(to, host.mixer),
          .norm_span = host.norm_span};
}

}  // namespace mererun
