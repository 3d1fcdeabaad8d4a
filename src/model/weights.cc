#include "model/weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "model/flash_weights.h"
#include "model/weight_converter.h"

namespace mererun {
namespace {

DeltaNetWeights convert(WeightConverter& to, const HostDeltaNet& host, const ModelConfig& config) {
  return {.in_proj_qkv = to.linear(host.in_proj_qkv),
          .in_proj_z = to.linear(host.in_proj_z),
          .in_proj_a = to.linear(host.in_proj_a),
          .in_proj_b = to.linear(host.in_proj_b),
          .out_proj = to.linear(host.out_proj),
          .conv = to.conv(host.conv, config.conv_dim(), config.conv_kernel),
          .a_log = to.vector(host.a_log),
          .dt_bias = to.vector(host.dt_bias),
          .norm = to.vector(host.norm)};
}

AttentionWeights convert(WeightConverter& to, const HostAttention& host) {
  return {.q_proj = to.linear(host.q_proj),
          .k_proj = to.linear(host.k_proj),
          .v_proj = to.linear(host.v_proj),
          .o_proj = to.linear(host.o_proj),
          .q_norm = to.vector(host.q_norm),
          .k_norm = to.vector(host.k_norm)};
}

MlpWeights convert(WeightConverter& to, const HostMlp& host) {
  return {to.linear(host.gate), to.linear(host.up), to.linear(host.down)};
}

MoeWeights convert(WeightConverter& to, const HostMoe& host) {
  return {.router = to.linear(host.router),
          .shared_gate = to.linear(host.shared_gate),
          .expert_gate = to.linear(host.expert_gate),
          .expert_up = to.linear(host.expert_up),
          .expert_down = to.linear(host.expert_down),
          .shared = convert(to, host.shared)};
}

LayerWeights convert(WeightConverter& to, const HostLayer& host, const ModelConfig& config) {
  LayerWeights layer;
  if (host.flash) {
    layer.flash = std::make_shared<const FlashLayerWeights>(convert(to, *host.flash, config));
  } else {
    layer.input_norm = to.vector(host.input_norm);
    layer.post_norm = to.vector(host.post_norm);
  }
  if (const auto* delta = std::get_if<HostDeltaNet>(&host.mixer)) {
    layer.mixer = convert(to, *delta, config);
  } else {
    layer.mixer = convert(to, std::get<HostAttention>(host.mixer));
  }
  if (const auto* mlp = std::get_if<HostMlp>(&host.feed_forward)) {
    layer.feed_forward = convert(to, *mlp);
  } else {
    layer.feed_forward = convert(to, std::get<HostMoe>(host.feed_forward));
  }
  return layer;
}

/// Rows of a matrix copied out in a given order, with the memory they live in.
struct SlicedSource {
  LinearSource source;
  std::vector<std::byte> weight, scales, biases;
};

std::vector<std::byte> copy_rows(const void* data, std::int64_t row_bytes, const std::vector<TokenId>& rows) {
  std::vector<std::byte> out(static_cast<std::size_t>(row_bytes) * rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r)
    std::memcpy(out.data() + static_cast<std::size_t>(row_bytes) * r,
                static_cast<const std::byte*>(data) + row_bytes * rows[r],
                static_cast<std::size_t>(row_bytes));
  return out;
}

/// The compact output matrix, in the precision of the full one. A backend that keeps reading its source keeps
/// `SlicedSource` alive through the handle's deleter.
LinearHandle slice_output(WeightConverter& to, const LinearSource& full, const DraftVocabulary& vocabulary) {
  std::vector<TokenId> rows;
  rows.reserve(static_cast<std::size_t>(vocabulary.padded_rows()));
  for (int r = 0; r < vocabulary.padded_rows(); ++r) rows.push_back(vocabulary.source_row(r));
  auto sliced = std::make_shared<SlicedSource>();
  sliced->weight = copy_rows(full.weight, full.weight_row_bytes(), rows);
  sliced->source = full;
  sliced->source.name = full.name + " (draft rows)";
  sliced->source.out = vocabulary.padded_rows();
  sliced->source.weight = sliced->weight.data();
  if (full.format == WeightFormat::kAffine) {
    sliced->scales = copy_rows(full.scales, full.scale_row_bytes(), rows);
    sliced->biases = copy_rows(full.biases, full.scale_row_bytes(), rows);
    sliced->source.scales = sliced->scales.data();
    sliced->source.biases = sliced->biases.data();
  }
  LinearHandle handle = to.linear(sliced->source);
  const LinearWeight* weight = handle.get();
  return LinearHandle(weight, [handle = std::move(handle), sliced](const LinearWeight*) {});
}

DraftHeadWeights convert(WeightConverter& to, const HostDraftHead& host, const HostWeights& model,
                         const LinearHandle& lm_head) {
  DraftHeadWeights head;
  head.pre_fc_norm_embedding = to.vector(host.pre_fc_norm_embedding);
  head.pre_fc_norm_hidden = to.vector(host.pre_fc_norm_hidden);
  head.layer = convert(to, host.layer, model.config);
  if (host.flash) {
    head.flash = std::make_shared<const FlashHeadWeights>(convert(to, *host.flash));
  } else {
    head.fc = to.linear(host.fc);
    head.norm = to.vector(host.norm);
  }
  head.output.vocabulary = host.vocabulary;
  if (host.vocabulary) {
    head.output.head = slice_output(to, model.lm_head, *host.vocabulary);
    head.output.rows = host.vocabulary->rows();
    if (!host.draft_lm_head.empty()) head.output.shortlist = to.linear(host.draft_lm_head);
  } else {
    head.output.head = lm_head;
    head.output.rows = lm_head->out();
  }
  return head;
}

}  // namespace

DeviceTensor WeightConverter::conv(const std::vector<float>& values, int channels, int taps) {
  std::vector<float> out(values.size());
  for (int c = 0; c < channels; ++c)
    for (int k = 0; k < taps; ++k)
      out[static_cast<std::size_t>(k) * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)] =
          values[static_cast<std::size_t>(c) * static_cast<std::size_t>(taps) + static_cast<std::size_t>(k)];
  return matrix(taps, channels, out);
}

DeviceTensor upload_f32(Ops& ops, int rows, int cols, std::span<const float> values) {
  MERERUN_CHECK(values.size() == static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols),
                "values fill it");
  DeviceTensor tensor;
  tensor.buffer = ops.allocate(values.size_bytes());
  ops.upload(tensor.buffer.data(), values.data(), values.size_bytes());
  tensor.view = make_view(tensor.buffer.data(), DType::kF32, rows, cols);
  return tensor;
}

ModelWeights prepare_weights(Ops& ops, const HostWeights& host, const LoadProgress& progress) {
  // A backend without the family's operations refuses here, by an empty call, and not inside a request.
  if (host.config.flash) ops.stream_silu({});
  WeightConverter to(ops);
  const auto total = static_cast<std::int64_t>(host.report.mapped_bytes);
  const auto step = [&] {
    // The draft rows are sliced from the output matrix, which was counted already.
    if (progress) progress({std::min(to.read_bytes(), total), total});
  };
  ModelWeights weights;
  weights.embed = to.embedding(host.embed);
  weights.lm_head = to.linear(host.lm_head);
  if (host.final_mixer) {
    weights.final_mixer = std::make_shared<const HyperConnectionWeights>(convert(to, *host.final_mixer));
  } else {
    weights.final_norm = to.vector(host.final_norm);
  }
  step();
  weights.layers.reserve(host.layers.size());
  for (const HostLayer& layer : host.layers) {
    weights.layers.push_back(convert(to, layer, host.config));
    step();
  }
  if (host.head) {
    weights.head = convert(to, *host.head, host, weights.lm_head);
    step();
  }
  weights.owned_bytes = to.owned_bytes();
  return weights;
}

}  // namespace mererun
