#include <fmt/format.h>

#include "checkpoint/checkpoint.h"
#include "model/flash_tables.h"
#include "model/host_weights.h"
#include "model/weight_tables.h"

namespace mererun {

namespace {

using VisitMatrix = std::function<void(std::string_view, const LinearSource&)>;
using VisitVector = std::function<void(std::string_view, const std::vector<float>&)>;

/// Walks the fields of the tables under one group prefix; either visitor may be empty.
class Walk {
 public:
  Walk(const ModelConfig& config, const VisitMatrix& matrix, const VisitVector& vector)
      : config_(config), matrix_(matrix), vector_(vector) {}

  void layer(const std::string& prefix, const HostLayer& weights) const {
    if (weights.flash) {
      flash_layer(prefix, *weights.flash);
    } else {
      vectors(prefix, layer_vectors(config_), weights);
    }
    if (const auto* delta = std::get_if<HostDeltaNet>(&weights.mixer)) {
      matrices(prefix, delta_net_matrices(config_), *delta);
      vectors(prefix, delta_net_vectors(config_), *delta);
    } else {
      const auto& attention = std::get<HostAttention>(weights.mixer);
      matrices(prefix, attention_matrices(config_), attention);
      vectors(prefix, attention_vectors(config_), attention);
    }
    if (const auto* mlp = std::get_if<HostMlp>(&weights.feed_forward)) {
      matrices(prefix, mlp_matrices(config_), *mlp);
      return;
    }
    const auto& moe = std::get<HostMoe>(weights.feed_forward);
    matrices(prefix, moe_matrices(config_), moe);
    for (const StackRow& row : expert_stacks(config_)) {
      if (matrix_) matrix_(fmt::format("{}mlp.experts.{}", prefix, row.projection), moe.*row.field);
    }
    matrices(prefix, shared_expert_matrices(config_), moe.shared);
  }

  void mixer(const std::string& prefix, const HostHyperConnection& connection) const {
    matrices(prefix, hyper_connection_matrices(config_), connection);
    vectors(prefix, hyper_connection_vectors(config_), connection);
  }

  /// What only Flash-Next has; the n-gram table is no part of a walk.
  void flash_layer(const std::string& prefix, const HostFlashLayer& flash) const {
    const auto connection = [&](const char* name, const HostHyperConnection& one) {
      mixer(prefix + name, one);
      matrices(prefix + name, inject_matrices(config_), one);
    };
    connection("attn_hyper_connection.", flash.mixer_connection);
    connection("mlp_hyper_connection.", flash.feed_forward_connection);
    if (flash.indexer) {
      matrices(prefix + "self_attn.indexer.", indexer_matrices(config_), *flash.indexer);
      vectors(prefix + "self_attn.indexer.", indexer_vectors(config_), *flash.indexer);
    }
    if (flash.ngram) {
      matrices(prefix + "ple.", ngram_matrices(config_), *flash.ngram);
      vectors(prefix + "ple.", ngram_vectors(config_), *flash.ngram);
      if (vector_) vector_(prefix + "ple.conv1d.weight", flash.ngram->conv);
    }
  }

  void flash_head(const HostDraftHead& head) const {
    matrices("mtp.", flash_head_matrices(config_), *head.flash);
    vectors("mtp.", flash_head_vectors(config_), head);
    mixer("mtp.hyper_connection_mixer.", head.flash->mixer);
  }

  template <typename T, typename Rows>
  void matrices(const std::string& prefix, const Rows& rows, const T& weights) const {
    if (!matrix_) return;
    for (const MatrixRow<T>& row : rows) matrix_(prefix + row.module, weights.*row.field);
  }

  template <typename T, typename Rows>
  void vectors(const std::string& prefix, const Rows& rows, const T& weights) const {
    if (!vector_) return;
    for (const VectorRow<T>& row : rows) vector_(prefix + row.tensor, weights.*row.field);
  }

 private:
  const ModelConfig& config_;
  const VisitMatrix& matrix_;
  const VisitVector& vector_;
};

void walk(const HostWeights& weights, const VisitMatrix& matrix, const VisitVector& vector) {
  const Walk walk(weights.config, matrix, vector);
  if (matrix) matrix("embed_tokens", weights.embed);
  for (const HostLayer& layer : weights.layers) walk.layer("", layer);
  if (weights.final_mixer) {
    walk.mixer("hyper_connection_mixer.", *weights.final_mixer);
  } else if (vector) {
    vector("norm.weight", weights.final_norm);
  }
  if (matrix && !weights.config.tied) matrix("lm_head", weights.lm_head);
  if (!weights.head) return;
  const HostDraftHead& head = *weights.head;
  if (head.flash) {
    walk.flash_head(head);
  } else {
    walk.matrices("mtp.", draft_head_matrices(weights.config), head);
    walk.vectors("mtp.", draft_head_vectors(weights.config), head);
  }
  walk.layer("mtp.", head.layer);
  if (matrix && !head.draft_lm_head.empty()) matrix("mtp.draft_lm_head", head.draft_lm_head);
}

}  // namespace

void for_each_linear(const HostWeights& weights, const VisitMatrix& visit) { walk(weights, visit, nullptr); }

void for_each_vector(const HostWeights& weights, const VisitVector& visit) { walk(weights, nullptr, visit); }

std::vector<TensorGroup> tensor_groups(const HostWeights& weights) {
  std::vector<TensorGroup> groups;
  const auto add = [&](TensorGroup one) {
    for (TensorGroup& known : groups) {
      if (known.name == one.name && known.dtype == one.dtype && known.bits == one.bits &&
          known.group == one.group) {
        ++known.count;
        known.bytes += one.bytes;
        return;
      }
    }
    groups.push_back(std::move(one));
  };
  for_each_linear(weights, [&](std::string_view name, const LinearSource& source) {
    const bool affine = source.format == WeightFormat::kAffine;
    add({std::string(name), 1, affine ? DType::kU32 : source.dtype, source.bits, source.group,
         static_cast<std::uint64_t>(source.bytes())});
  });
  for (const HostLayer& layer : weights.layers) {
    if (!layer.flash || !layer.flash->ngram) continue;
    const HostNgramTable& table = layer.flash->ngram->table;
    const bool affine = table.format.format == WeightFormat::kAffine;
    add({"ple.ngram_embedding (stays on disk)", static_cast<int>(table.shards.size()),
         affine ? DType::kU32 : table.format.dtype, table.format.bits, table.format.group, table.bytes});
  }
  for_each_vector(weights, [&](std::string_view name, const std::vector<float>& values) {
    add({std::string(name), 1, DType::kF32, 0, 0, values.size() * sizeof(float)});
  });
  return groups;
}

ValueScan find_non_finite(std::span<const TensorEntry* const> tensors,
                          const std::function<bool(std::uint64_t done, std::uint64_t total)>& progress) {
  constexpr std::uint64_t kPart = std::uint64_t{16} << 20;
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  for (const TensorEntry* tensor : tensors) total += tensor->bytes;
  ValueScan scan;
  for (const TensorEntry* tensor : tensors) {
    std::optional<std::uint64_t> index;
    for (std::uint64_t at = 0; !index && at < tensor->bytes; at += kPart) {
      if (progress && !progress(done + at, total)) {
        scan.is_stopped = true;
        return scan;
      }
      TensorEntry part = *tensor;
      part.data += at;
      part.bytes = std::min(kPart, tensor->bytes - at);
      index = find_non_finite(part);
      if (index) *index += at / size_of(tensor->dtype);
      tensor->file->drop_pages(part.data, part.bytes);
    }
    done += tensor->bytes;
    ++scan.tensors;
    if (!index) continue;
    scan.problems.push_back(
        fmt::format("{}: expected finite numbers, got NaN or infinity at element {} in {}",
                    tensor->stored_name, *index, tensor->file->path().filename().string()));
  }
  return scan;
}

}  // namespace mererun
