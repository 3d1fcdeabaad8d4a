#include "model/activations.h"

#include <algorithm>

#include "base/error.h"

namespace mererun {
namespace {

/// Lays arrays of [rows, cols] four-byte elements one after the other, each on a 64-byte border.
class Layout {
 public:
  Layout(std::byte* base, int max_rows, std::size_t offset = 0)
      : base_(base), max_rows_(max_rows), offset_(offset) {}

  TensorView take(int rows, int cols, DType dtype = DType::kF32) {
    std::byte* data = base_ == nullptr ? nullptr : base_ + offset_;
    const std::size_t bytes = 4 * static_cast<std::size_t>(max_rows_) * static_cast<std::size_t>(cols);
    offset_ += (bytes + 63) / 64 * 64;
    return make_view(data, dtype, rows, cols);
  }
  std::size_t offset() const { return offset_; }

 private:
  std::byte* base_;
  int max_rows_;
  std::size_t offset_;
};

Activations::Delta lay_delta(Layout at, const ModelConfig& c, int rows, std::size_t* end = nullptr) {
  Activations::Delta d;
  d.qkv = at.take(rows, c.conv_dim());
  d.z = at.take(rows, c.value_dim());
  d.a = at.take(rows, c.linear_value_heads);
  d.b = at.take(rows, c.linear_value_heads);
  d.q = at.take(rows, c.key_dim());
  d.k = at.take(rows, c.key_dim());
  d.v = at.take(rows, c.value_dim());
  d.alpha = at.take(rows, c.linear_value_heads);
  d.beta = at.take(rows, c.linear_value_heads);
  d.out = at.take(rows, c.value_dim());
  if (end != nullptr) *end = at.offset();
  return d;
}

Activations::Attention lay_attention(Layout at, const ModelConfig& c, int rows, std::size_t* end = nullptr) {
  Activations::Attention a;
  a.q_gate = at.take(rows, 2 * c.attention_dim());
  a.k = at.take(rows, c.kv_dim());
  a.v = at.take(rows, c.kv_dim());
  a.q = at.take(rows, c.attention_dim());
  a.out = at.take(rows, c.attention_dim());
  if (c.flash) {
    const int heads = c.flash->indexer_heads;
    a.index = at.take(rows, (heads + 1) * c.flash->indexer_head_dim);
    a.index_q = at.take(rows, heads * c.flash->indexer_head_dim);
    a.blocks = at.take(rows, c.flash->budget_blocks(), DType::kI32);
  }
  if (end != nullptr) *end = at.offset();
  return a;
}

Activations::FeedForward lay_feed_forward(Layout at, const ModelConfig& c, int rows,
                                          std::size_t* end = nullptr) {
  Activations::FeedForward f;
  const int width = c.is_moe() ? c.shared_intermediate : c.intermediate;
  f.gate = at.take(rows, width);
  f.up = at.take(rows, width);
  if (c.is_moe()) {
    f.router = at.take(rows, c.experts);
    f.ids = at.take(rows, c.experts_per_token, DType::kI32);
    f.weights = at.take(rows, c.experts_per_token);
    f.shared_gate = at.take(rows, 1);
    f.shared = at.take(rows, c.hidden);
  }
  if (end != nullptr) *end = at.offset();
  return f;
}

Activations::Streams lay_streams(Layout at, const ModelConfig& c, int rows, std::size_t* end = nullptr) {
  Activations::Streams s;
  s.normed = at.take(rows, c.residual_dim());
  s.low = at.take(rows, c.flash->stream_lowrank);
  s.gate = at.take(rows, c.residual_dim());
  if (end != nullptr) *end = at.offset();
  return s;
}

Activations::Ngram lay_ngram(Layout at, const ModelConfig& c, int rows, std::size_t* end = nullptr) {
  Activations::Ngram n;
  n.embedding = at.take(rows, c.flash->ngram_embed_dim);
  n.key = at.take(rows, c.residual_dim());
  n.value = at.take(rows, c.hidden);
  n.query = at.take(rows, c.residual_dim());
  n.gated = at.take(rows, c.residual_dim());
  if (end != nullptr) *end = at.offset();
  return n;
}

Activations::HeadJoin lay_head_join(Layout at, const ModelConfig& c, int rows, std::size_t* end = nullptr) {
  Activations::HeadJoin j;
  j.normed = at.take(rows, c.residual_dim());
  j.embedding = at.take(rows, c.hidden);
  j.joined = at.take(rows, c.hidden);
  if (end != nullptr) *end = at.offset();
  return j;
}

/// End of the regions that only a model with streams has.
std::size_t lay_flash(const Layout& shared, const ModelConfig& c) {
  if (!c.flash) return 0;
  std::size_t streams = 0, ngram = 0, head = 0;
  lay_streams(shared, c, 0, &streams);
  lay_ngram(shared, c, 0, &ngram);
  lay_head_join(shared, c, 0, &head);
  return std::max({streams, c.flash->has_ngrams() ? ngram : 0, head});
}

struct Fixed {
  TensorView ids, positions, residual, normed, hidden, inject;
  std::size_t end;
};

Fixed lay_fixed(Layout at, const ModelConfig& c, int rows) {
  Fixed f;
  f.ids = make_view(at.take(rows, 1).data, DType::kI32, 1, rows);
  f.positions = make_view(at.take(rows, 1).data, DType::kI32, 1, rows);
  f.residual = at.take(rows, c.residual_dim());
  f.normed = at.take(rows, c.hidden);
  f.hidden = at.take(rows, c.hidden);  // with streams: the output of a sublayer
  if (c.flash) f.inject = at.take(rows, c.flash->streams);
  f.end = at.offset();
  return f;
}

/// Where the region that mixers and feed-forwards share starts, where the logits start, and the end.
struct Regions {
  std::size_t shared, logits, end;
};

Regions lay_regions(const ModelConfig& c, int max_rows, int max_logit_rows) {
  Regions r{};
  r.shared = lay_fixed(Layout(nullptr, max_rows), c, 0).end;
  std::size_t delta = 0, attention = 0, feed_forward = 0;
  const Layout shared(nullptr, max_rows, r.shared);
  lay_delta(shared, c, 0, &delta);
  lay_attention(shared, c, 0, &attention);
  lay_feed_forward(shared, c, 0, &feed_forward);
  Layout fc_input_end = shared;
  fc_input_end.take(0, 2 * c.hidden);
  r.logits = std::max({delta, attention, feed_forward, fc_input_end.offset(), lay_flash(shared, c)});
  Layout logits(nullptr, max_logit_rows, r.logits);
  logits.take(0, c.vocabulary);
  r.end = logits.offset();
  return r;
}

}  // namespace

Activations::Activations(Ops& ops, const ModelConfig& config, int max_rows, int max_logit_rows)
    : max_rows_(max_rows), max_logit_rows_(max_logit_rows), config_(config) {
  const Regions regions = lay_regions(config, max_rows, max_logit_rows);
  shared_offset_ = regions.shared;
  logits_offset_ = regions.logits;
  buffer_ = ops.allocate(regions.end);
}

std::size_t Activations::size_bytes(const ModelConfig& config, int max_rows, int max_logit_rows) {
  return lay_regions(config, max_rows, max_logit_rows).end;
}

TensorView Activations::ids(int rows) const {
  return lay_fixed(Layout(buffer_.as<std::byte>(), max_rows_), config_, rows).ids;
}
TensorView Activations::positions(int rows) const {
  return lay_fixed(Layout(buffer_.as<std::byte>(), max_rows_), config_, rows).positions;
}
TensorView Activations::residual(int rows) const {
  return lay_fixed(Layout(buffer_.as<std::byte>(), max_rows_), config_, rows).residual;
}
TensorView Activations::normed(int rows) const {
  return lay_fixed(Layout(buffer_.as<std::byte>(), max_rows_), config_, rows).normed;
}
TensorView Activations::hidden(int rows) const {
  return lay_fixed(Layout(buffer_.as<std::byte>(), max_rows_), config_, rows).hidden;
}
TensorView Activations::sublayer_out(int rows) const { return config_.flash ? hidden(rows) : residual(rows); }
TensorView Activations::sublayer_base(int rows) const {
  return config_.flash ? TensorView{} : residual(rows);
}
TensorView Activations::inject(int rows) const {
  return lay_fixed(Layout(buffer_.as<std::byte>(), max_rows_), config_, rows).inject;
}
Activations::Streams Activations::streams(int rows) const {
  return lay_streams(Layout(buffer_.as<std::byte>(), max_rows_, shared_offset_), config_, rows);
}
Activations::Ngram Activations::ngram(int rows) const {
  return lay_ngram(Layout(buffer_.as<std::byte>(), max_rows_, shared_offset_), config_, rows);
}
Activations::HeadJoin Activations::head_join(int rows) const {
  return lay_head_join(Layout(buffer_.as<std::byte>(), max_rows_, shared_offset_), config_, rows);
}
TensorView Activations::fc_input(int rows) const {
  return Layout(buffer_.as<std::byte>(), max_rows_, shared_offset_).take(rows, 2 * config_.hidden);
}
TensorView Activations::logits(int rows) const {
  MERERUN_CHECK(rows <= max_logit_rows_, "logit rows inside the arena");
  return Layout(buffer_.as<std::byte>(), max_logit_rows_, logits_offset_).take(rows, config_.vocabulary);
}
Activations::Delta Activations::delta(int rows) const {
  return lay_delta(Layout(buffer_.as<std::byte>(), max_rows_, shared_offset_), config_, rows);
}
Activations::Attention Activations::attention(int rows) const {
  return lay_attention(Layout(buffer_.as<std::byte>(), max_rows_, shared_offset_), config_, rows);
}
Activations::FeedForward Activations::feed_forward(int rows) const {
  return lay_feed_forward(Layout(buffer_.as<std::byte>(), max_rows_, shared_offset_), config_, rows);
}

}  // namespace mererun
