#include "model/weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace mererun {
namespace {

/// Remembers every handle it makes, to count what the backend holds.
class Converter {
 public:
  explicit Converter(Ops& ops) : ops_(ops) {}

  LinearHandle linear(const LinearSource& source) {
    read_ += source.bytes();
    return count(ops_.prepare_linear(source));
  }
  LinearHandle embedding(const LinearSource& source) {
    read_ += source.bytes();
    return count(ops_.prepare_embedding(source));
  }
  DeviceTensor vector(const std::vector<float>& values) {
    return matrix(1, static_cast<int>(values.size()), values);
  }
  DeviceTensor matrix(int rows, int cols, std::span<const float> values) {
    owned_ += values.size_bytes();
    return upload_f32(ops_, rows, cols, values);
  }
  std::size_t owned_bytes() const { return owned_; }
  /// Bytes of the checkpoint converted so far.
  std::int64_t read_bytes() const { return read_; }

 private:
  LinearHandle count(LinearHandle handle) {
    owned_ += handle->owned_bytes();
    return handle;
  }

  Ops& ops_;
  std::size_t owned_ = 0;
  std::int64_t read_ = 0;
};

/// [C, K] -> [K, C]: one tap's channels become contiguous.
std::vector<float> transpose_conv(const std::vector<float>& conv, int channels, int taps) {
  std::vector<float> out(conv.size());
  for (int c = 0; c < channels; ++c)
    for (int k = 0; k < taps; ++k)
      out[static_cast<std::size_t>(k) * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)] =
          conv[static_cast<std::size_t>(c) * static_cast<std::size_t>(taps) + static_cast<std::size_t>(k)];
  return out;
}

DeltaNetWeights convert(Converter& to, const HostDeltaNet& host, const ModelConfig& config) {
  const int channels = config.conv_dim();
  return {.in_proj_qkv = to.linear(host.in_proj_qkv),
          .in_proj_z = to.linear(host.in_proj_z),
          .in_proj_a = to.linear(host.in_proj_a),
          .in_proj_b = to.linear(host.in_proj_b),
          .out_proj = to.linear(host.out_proj),
          .conv = to.matrix(config.conv_kernel, channels,
                            transpose_conv(host.conv, channels, config.conv_kernel)),
          .a_log = to.vector(host.a_log),
          .dt_bias = to.vector(host.dt_bias),
          .norm = to.vector(host.norm)};
}

AttentionWeights convert(Converter& to, const HostAttention& host) {
  return {.q_proj = to.linear(host.q_proj),
          .k_proj = to.linear(host.k_proj),
          .v_proj = to.linear(host.v_proj),
          .o_proj = to.linear(host.o_proj),
          .q_norm = to.vector(host.q_norm),
          .k_norm = to.vector(host.k_norm)};
}

MlpWeights convert(Converter& to, const HostMlp& host) {
  return {to.linear(host.gate), to.linear(host.up), to.linear(host.down)};
}

MoeWeights convert(Converter& to, const HostMoe& host) {
  return {.router = to.linear(host.router),
          .shared_gate = to.linear(host.shared_gate),
          .expert_gate = to.linear(host.expert_gate),
          .expert_up = to.linear(host.expert_up),
          .expert_down = to.linear(host.expert_down),
          .shared = convert(to, host.shared)};
}

LayerWeights convert(Converter& to, const HostLayer& host, const ModelConfig& config) {
  LayerWeights layer{.input_norm = to.vector(host.input_norm),
                     .post_norm = to.vector(host.post_norm),
                     .mixer = {},
                     .feed_forward = {}};
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
LinearHandle slice_output(Converter& to, const LinearSource& full, const DraftVocabulary& vocabulary) {
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

DraftHeadWeights convert(Converter& to, const HostDraftHead& host, const HostWeights& model,
                         const LinearHandle& lm_head) {
  DraftHeadWeights head{.fc = to.linear(host.fc),
                        .pre_fc_norm_embedding = to.vector(host.pre_fc_norm_embedding),
                        .pre_fc_norm_hidden = to.vector(host.pre_fc_norm_hidden),
                        .layer = convert(to, host.layer, model.config),
                        .norm = to.vector(host.norm),
                        .output = {}};
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
  Converter to(ops);
  const auto total = static_cast<std::int64_t>(host.report.mapped_bytes);
  const auto step = [&] {
    // The draft rows are sliced from the output matrix, which was counted already.
    if (progress) progress({std::min(to.read_bytes(), total), total});
  };
  ModelWeights weights;
  weights.embed = to.embedding(host.embed);
  weights.lm_head = to.linear(host.lm_head);
  weights.final_norm = to.vector(host.final_norm);
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
