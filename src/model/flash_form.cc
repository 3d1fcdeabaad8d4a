#include "model/flash_form.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/numerics.h"

namespace mererun {

namespace {

/// The same rows as four times as many of a quarter of the width: stream after stream.
TensorView stream_rows(const TensorView& rows) {
  return make_view(rows.data, rows.dtype, kStreams * rows.rows, rows.cols / kStreams);
}

}  // namespace

FlashForm::FlashForm(Ops& ops, const ModelConfig& config, const ModelWeights& weights,
                     const Activations& activations)
    : ops_(ops), config_(config), flash_(*config.flash), weights_(weights), activations_(activations) {
  for (const LayerWeights& layer : weights.layers)
    if (layer.flash->ngram) table_ = layer.flash->ngram->table.get();
}

void FlashForm::expect(const SequenceState& state, std::span<const TokenId> before,
                       std::span<const TokenId> ids) {
  if (table_ == nullptr) return;
  const auto kept = static_cast<std::size_t>(table_->hash().context_tokens());
  context_ = state.context();
  context_.insert(context_.end(), before.end() - static_cast<std::ptrdiff_t>(std::min(kept, before.size())),
                  before.end());
  table_->expect(std::span(context_).last(kept), ids);
}

void FlashForm::begin(std::span<const TokenId> ids, std::span<const PassSegment> segments) {
  if (table_ == nullptr) return;
  table_rows_.clear();
  for (const PassSegment& s : segments)
    table_->hash().append_rows(
        s.state->context(),
        ids.subspan(static_cast<std::size_t>(s.first_row), static_cast<std::size_t>(s.rows)), table_rows_);
  table_->start(table_rows_);
}

void FlashForm::embed(const PassContext& pass) {
  const TensorView residual = activations_.residual(pass.rows);
  for (int c = 0; c < kStreams; ++c)
    ops_.embed_rows({.ids = activations_.ids(pass.rows),
                     .weight = weights_.embed.get(),
                     .out = residual.col_range(c * config_.hidden, config_.hidden)});
}

void FlashForm::enter_layer(const PassContext& pass, const LayerWeights& layer,
                            std::span<const PassSegment> segments) {
  if (layer.flash->ngram) run_ngram(pass, *layer.flash->ngram, segments);
}

void FlashForm::mix(const HyperConnectionWeights& weights, TensorView streams, TensorView out) {
  const Activations::Streams s = activations_.streams(streams.rows);
  ops_.grouped_rms_norm({.x = streams,
                         .weight = weights.norm.view,
                         .groups = kStreams,
                         .eps = static_cast<float>(config_.rms_eps),
                         .out = s.normed});
  const std::array<LinearParams::Target, 2> in{
      {{weights.down.get(), s.low, {}}, {weights.inject.get(), activations_.inject(streams.rows), {}}}};
  const bool writes = weights.inject != nullptr;
  ops_.linear({.x = s.normed, .targets = {in.data(), writes ? std::size_t{2} : std::size_t{1}}});
  ops_.stream_silu({.x = s.low, .out = s.low});
  const LinearParams::Target up{weights.up.get(), s.gate, {}};
  ops_.linear({.x = s.low, .targets = {&up, 1}});
  ops_.mix_streams({.x = s.normed, .gate = s.gate, .out = out});
}

void FlashForm::read(const PassContext& pass, const LayerWeights& layer, Sublayer sublayer) {
  const FlashLayerWeights& w = *layer.flash;
  mix(sublayer == Sublayer::kMixer ? w.mixer_connection : w.feed_forward_connection,
      activations_.residual(pass.rows), activations_.normed(pass.rows));
}

void FlashForm::write(const PassContext& pass, const LayerWeights&, Sublayer) {
  ops_.add_to_streams({.y = activations_.sublayer_out(pass.rows),
                       .inject = activations_.inject(pass.rows),
                       .streams = activations_.residual(pass.rows)});
}

TensorView FlashForm::finish(const PassContext& pass) { return activations_.residual(pass.rows); }

TensorView FlashForm::output_input(TensorView hidden) {
  const TensorView out = activations_.normed(hidden.rows);
  mix(*weights_.final_mixer, hidden, out);
  return out;
}

void FlashForm::attend(const PassContext& pass, const LayerWeights& layer, int index,
                       std::span<const AttentionSegment> segments) {
  const auto& weights = std::get<AttentionWeights>(layer.mixer);
  const IndexerWeights& indexer = *layer.flash->indexer;
  const Activations::Attention a = activations_.attention(pass.rows);
  const std::array<LinearParams::Target, 4> in{{{weights.q_proj.get(), a.q_gate, {}},
                                                {weights.k_proj.get(), a.k, {}},
                                                {weights.v_proj.get(), a.v, {}},
                                                {indexer.qk.get(), a.index, {}}}};
  ops_.linear({.x = activations_.normed(pass.rows), .targets = in});
  for (const AttentionSegment& s : segments) attend_segment(pass, weights, indexer, index, s);
  const LinearParams::Target out{weights.o_proj.get(), activations_.sublayer_out(pass.rows), {}};
  ops_.linear({.x = a.out, .targets = {&out, 1}});
}

void FlashForm::attend_segment(const PassContext& pass, const AttentionWeights& weights,
                               const IndexerWeights& indexer, int index, const AttentionSegment& s) {
  prepare_attention(pass, weights, s);
  prepare_index(pass, indexer, s);
  // Up to this position every complete block is within the budget: everything is visible.
  const int last_dense = kIndexBlockPositions * (flash_.budget_blocks() + 1) - 2;
  const int dense = std::clamp(last_dense + 1 - s.first_position, 0, s.rows);
  if (dense > 0) attend_dense(pass, {s.first_row, dense, s.first_position, s.cache});
  if (dense < s.rows) {
    attend_sparse(pass, index, {s.first_row + dense, s.rows - dense, s.first_position + dense, s.cache});
  }
}

void FlashForm::prepare_index(const PassContext& pass, const IndexerWeights& indexer,
                              const AttentionSegment& s) {
  const Activations::Attention a = activations_.attention(pass.rows);
  const auto rows = [&](const TensorView& view) { return view.row_range(s.first_row, s.rows); };
  ops_.index_prepare({.qk = rows(a.index),
                      .q_norm = indexer.q_norm.view,
                      .k_norm = indexer.k_norm.view,
                      .positions = activations_.positions(pass.rows).col_range(s.first_row, s.rows),
                      .rope = pass.rope,
                      .eps = static_cast<float>(config_.rms_eps),
                      .heads = flash_.indexer_heads,
                      .q = rows(a.index_q),
                      .cache = s.cache});
}

void FlashForm::append_keys(const PassContext& pass, const LayerWeights& layer, const AttentionSegment& s) {
  const IndexerWeights& indexer = *layer.flash->indexer;
  mererun::append_keys(pass, std::get<AttentionWeights>(layer.mixer), s);
  const LinearParams::Target index{indexer.qk.get(), activations_.attention(pass.rows).index, {}};
  ops_.linear({.x = activations_.normed(pass.rows), .targets = {&index, 1}});
  prepare_index(pass, indexer, s);
}

void FlashForm::attend_sparse(const PassContext& pass, int index, const AttentionSegment& s) {
  const Activations::Attention a = activations_.attention(pass.rows);
  const auto rows = [&](const TensorView& view) { return view.row_range(s.first_row, s.rows); };
  const TensorView positions = activations_.positions(pass.rows).col_range(s.first_row, s.rows);
  ops_.select_blocks({.q = rows(a.index_q),
                      .positions = positions,
                      .cache = s.cache,
                      .heads = flash_.indexer_heads,
                      .blocks = rows(a.blocks)});
  if (pass.hooks != nullptr && pass.hooks->selected) pass.hooks->selected(index, s.first_row, rows(a.blocks));
  ops_.attend_blocks({.q = rows(a.q),
                      .q_gate = rows(a.q_gate),
                      .positions = positions,
                      .blocks = rows(a.blocks),
                      .cache = s.cache,
                      .heads = config_.heads,
                      .scale_log2e = numerics::attention_scale_log2e(config_.head_dim),
                      .out = rows(a.out)});
}

void FlashForm::run_ngram(const PassContext& pass, const NgramWeights& weights,
                          std::span<const PassSegment> segments) {
  const Activations::Ngram n = activations_.ngram(pass.rows);
  const TensorView residual = activations_.residual(pass.rows);
  const auto eps = static_cast<float>(config_.rms_eps);
  ops_.submit();  // the layers before this one run while the rows are awaited
  const std::span<const float> embedding = weights.table->finish(table_rows_.size());
  if (pass.hooks != nullptr && pass.hooks->table_rows) pass.hooks->table_rows(table_rows_);
  ops_.upload(n.embedding.data, embedding.data(), embedding.size_bytes());
  const std::array<LinearParams::Target, 2> in{
      {{weights.key.get(), n.key, {}}, {weights.value.get(), n.value, {}}}};
  ops_.linear({.x = n.embedding, .targets = in});
  ops_.grouped_rms_norm({.x = n.key, .weight = weights.norm_key.view, .eps = eps, .out = n.key});
  ops_.grouped_rms_norm({.x = residual, .weight = weights.norm_query.view, .eps = eps, .out = n.query});
  ops_.ngram_gate({.key = n.key, .query = n.query, .value = n.value, .out = n.gated});
  const TensorView inputs = n.key;  // free again
  ops_.grouped_rms_norm({.x = n.gated, .weight = weights.norm_conv.view, .eps = eps, .out = inputs});
  for (const PassSegment& s : segments) {
    const auto rows = [&](const TensorView& view) { return view.row_range(s.first_row, s.rows); };
    const TensorView window = s.state->recurrent().ngram_window();
    ops_.ngram_conv({.inputs = rows(inputs),
                     .window = window,
                     .weight = weights.conv.view,
                     .gated = rows(n.gated),
                     .dilation = flash_.ngram_size,
                     .residual = rows(residual)});
    if (s.transaction != nullptr) {
      // The window stays; its next content depends on how many rows will be accepted.
      ops_.copy(s.transaction->ngram_inputs().data, rows(inputs).data,
                static_cast<std::size_t>(s.rows) * static_cast<std::size_t>(inputs.cols) * sizeof(float));
    } else {
      ops_.advance_window({.window = window, .inputs = rows(inputs)});
    }
  }
}

void FlashForm::join_head(const PassContext& pass, TensorView hidden) {
  const DraftHeadWeights& w = *weights_.head;
  const auto eps = static_cast<float>(config_.rms_eps);
  const Activations::HeadJoin j = activations_.head_join(pass.rows);
  const TensorView residual = activations_.residual(pass.rows);
  // `hidden` may be the residual of the pass before: it is read before the residual is written.
  if (w.flash->norm_span == HeadNormSpan::kPerStream) {
    ops_.grouped_rms_norm({.x = hidden, .weight = w.pre_fc_norm_hidden.view, .eps = eps, .out = j.normed});
  } else {
    ops_.rms_norm({.x = hidden, .weight = w.pre_fc_norm_hidden.view, .eps = eps, .out = j.normed});
  }
  ops_.embed_rows({.ids = activations_.ids(pass.rows), .weight = weights_.embed.get(), .out = j.embedding});
  ops_.rms_norm({.x = j.embedding, .weight = w.pre_fc_norm_embedding.view, .eps = eps, .out = j.embedding});
  const LinearParams::Target embedding{w.flash->fc_embedding.get(), j.joined, {}};
  ops_.linear({.x = j.embedding, .targets = {&embedding, 1}});
  const LinearParams::Target streams{w.flash->fc_hidden.get(), stream_rows(residual), {}};
  ops_.linear({.x = stream_rows(j.normed), .targets = {&streams, 1}});
  for (int c = 0; c < kStreams; ++c) {
    const TensorView stream = residual.col_range(c * config_.hidden, config_.hidden);
    ops_.add_rows({.a = stream, .b = j.joined, .out = stream});
  }
}

TensorView FlashForm::finish_head(const PassContext& pass) { return activations_.residual(pass.rows); }

TensorView FlashForm::head_output_input(TensorView output) {
  const TensorView out = activations_.normed(output.rows);
  mix(weights_.head->flash->mixer, output, out);
  return out;
}

}  // namespace mererun
