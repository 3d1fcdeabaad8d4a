#include "model/flash_loader.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "model/flash_tables.h"

namespace mererun {

namespace {

void bind_connection(LayerBinder& layers, const std::string& prefix, HostHyperConnection& connection) {
  bind_stream_mixer(layers, prefix, connection);
  layers.bind_matrices(prefix, inject_matrices(layers.config()), connection);
}

/// The convolution's weight, in either axis order; one converter gives it another name.
std::vector<float> bind_ngram_conv(LayerBinder& layers, const std::string& prefix) {
  const ModelConfig& c = layers.config();
  const std::int64_t channels = c.residual_dim();
  const std::int64_t taps = c.flash->ngram_conv_kernel;
  const std::vector<std::vector<std::int64_t>> shapes{{channels, 1, taps}, {channels, taps, 1}};
  const std::string other = prefix + "conv_weight";
  const std::string name = layers.binder().find(other) != nullptr ? other : prefix + "conv1d.weight";
  return layers.binder().vector(name, static_cast<int>(channels * taps), shapes);
}

/// One stored integer buffer, which must hold what the formula gives.
void check_buffer(TensorBinder& binder, const std::string& name, const std::vector<std::int64_t>& expected) {
  const TensorEntry* tensor = binder.find(name);
  if (tensor == nullptr) return;
  binder.take(*tensor);
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(expected.size())};
  if (tensor->dtype != DType::kI64 || tensor->shape != shape) {
    binder.problem(fmt::format("{}: expected {}, got {}", tensor->stored_name,
                               describe_type(DType::kI64, shape), describe(*tensor)));
    return;
  }
  std::vector<std::int64_t> stored(expected.size());
  std::memcpy(stored.data(), tensor->data, tensor->bytes);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (stored[i] == expected[i]) continue;
    binder.problem(fmt::format("{}: expected {} at index {} (from config.json), got {}", tensor->stored_name,
                               expected[i], i, stored[i]));
    return;
  }
}

class TableBinder {
 public:
  TableBinder(LayerBinder& layers, std::string prefix, HostNgramTable& table)
      : binder_(layers.binder()), config_(*layers.config().flash), prefix_(std::move(prefix)), table_(table) {
    table_.buffers = make_ngram_buffers(config_, layers.config().vocabulary);
  }

  void bind(LoadReport& report) {
    check_buffer(binder_, prefix_ + "layer_multipliers", table_.buffers.multipliers);
    check_buffer(binder_, prefix_ + "ngram_heads_vocab_sizes", table_.buffers.head_sizes);
    check_buffer(binder_, prefix_ + "ngram_heads_offsets", table_.buffers.head_offsets);
    const std::int64_t rows = ngram_table_rows(config_, table_.buffers);
    const bool whole = binder_.find(prefix_ + "ngram_embedding.weight") != nullptr ||
                       binder_.find(prefix_ + "ngram_embedding.scales") != nullptr;
    const int parts = whole ? 1 : config_.ngram_parts;
    if (rows % parts != 0) {
      binder_.problem(
          fmt::format("{}ngram_embedding: expected split_ngram_parts to divide its {} rows, got {}", prefix_,
                      rows, parts));
      return;
    }
    table_.rows_per_shard = rows / parts;
    if (table_.rows_per_shard > std::numeric_limits<int>::max()) {
      binder_.problem(fmt::format("{}ngram_embedding: expected at most {} rows a shard, got {}", prefix_,
                                  std::numeric_limits<int>::max(), table_.rows_per_shard));
      return;
    }
    table_.width = config_.ngram_width();
    for (int i = 0; i < parts; ++i) bind_shard(whole ? prefix_ + "ngram_embedding" : shard_name(i));
    report.table_bytes += table_.bytes;
  }

 private:
  std::string shard_name(int index) const {
    const std::string dotted = fmt::format("{}ngram_embedding.shards.{}", prefix_, index);
    if (binder_.has_prefix(dotted + ".")) return dotted;
    return fmt::format("{}ngram_embedding.shard_{}", prefix_, index);
  }

  void bind_shard(const std::string& module) {
    LinearSource source = binder_.matrix(module, static_cast<int>(table_.rows_per_shard), table_.width);
    if (source.empty()) return;
    TableShard shard;
    add_array(shard, module + ".weight", source.weight_row_bytes());
    if (source.format == WeightFormat::kAffine) {
      add_array(shard, module + ".scales", source.scale_row_bytes());
      add_array(shard, module + ".biases", source.scale_row_bytes());
    }
    source.weight = source.scales = source.biases = nullptr;
    const LinearSource& first = table_.format;
    if (table_.shards.empty()) {
      table_.format = source;
    } else if (first.format != source.format || first.bits != source.bits || first.group != source.group ||
               first.dtype != source.dtype) {
      binder_.problem(
          fmt::format("{}: expected the precision of the table's first shard, got another", module));
    }
    table_.shards.push_back(std::move(shard));
  }

  void add_array(TableShard& shard, const std::string& name, std::int64_t row_bytes) {
    const TensorEntry& tensor = *binder_.find(name);
    shard.arrays.push_back({tensor.file->path(),
                            static_cast<std::uint64_t>(tensor.data - tensor.file->data()),
                            static_cast<std::uint64_t>(row_bytes)});
    table_.bytes += tensor.bytes;
  }

  TensorBinder& binder_;
  const FlashConfig& config_;
  std::string prefix_;
  HostNgramTable& table_;
};

}  // namespace

void bind_stream_mixer(LayerBinder& layers, const std::string& prefix, HostHyperConnection& mixer) {
  layers.bind_vectors(prefix, hyper_connection_vectors(layers.config()), mixer);
  layers.bind_matrices(prefix, hyper_connection_matrices(layers.config()), mixer);
}

void bind_flash_layer(LayerBinder& layers, const std::string& prefix, LayerKind kind, bool has_ngram,
                      const LoadOptions& options, HostLayer& weights) {
  weights.flash = std::make_shared<HostFlashLayer>();
  HostFlashLayer& flash = *weights.flash;
  bind_connection(layers, prefix + "attn_hyper_connection.", flash.mixer_connection);
  bind_connection(layers, prefix + "mlp_hyper_connection.", flash.feed_forward_connection);
  if (kind == LayerKind::kAttention) {
    const std::string at = prefix + "self_attn.indexer.";
    flash.indexer.emplace();
    layers.bind_matrices(at, indexer_matrices(layers.config()), *flash.indexer);
    layers.bind_vectors(at, indexer_vectors(layers.config()), *flash.indexer);
  }
  if (!has_ngram) return;
  const std::string at = prefix + "ple.";
  HostNgram& ngram = flash.ngram.emplace();
  layers.bind_matrices(at, ngram_matrices(layers.config()), ngram);
  layers.bind_vectors(at, ngram_vectors(layers.config()), ngram);
  ngram.conv = bind_ngram_conv(layers, at);
  ngram.table.options = options.table;
  TableBinder(layers, at + "ple_embedding.", ngram.table).bind(layers.report());
}

void bind_flash_head(LayerBinder& layers, const std::string& prefix, const LoadOptions& options,
                     HostDraftHead& head) {
  const ModelConfig& config = layers.config();
  head.flash = std::make_shared<HostFlashHead>();
  head.flash->norm_span = options.head_norm_span;
  layers.bind_matrices(prefix, flash_head_matrices(config), *head.flash);
  layers.bind_vectors(prefix, flash_head_vectors(config), head);
  const std::string mixer = prefix + "hyper_connection_mixer.";
  bind_stream_mixer(layers, mixer, head.flash->mixer);
  layers.binder().ignore(mixer + "block_inject_weight");
}

}  // namespace mererun
