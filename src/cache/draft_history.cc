#include "cache/draft_history.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mererun {
namespace {
constexpr int kFirstRows = 512;  // rows allocated at least
std::size_t bytes_of_row(int hidden) { return static_cast<std::size_t>(hidden) * sizeof(float); }
}  // namespace

DraftHistory::DraftHistory(Ops& ops, std::shared_ptr<KvPagePool> pool, int hidden)
    : DraftHistory(ops, KvCache(std::move(pool)), hidden) {}

void DraftHistory::grow(int rows) {
  const auto bytes = bytes_of_row(hidden_);
  const int capacity = static_cast<int>(rows_.size_bytes() / bytes);
  const int held = waiting();
  if (first_ + held + rows <= capacity) return;
  if (held + rows <= capacity && first_ >= held) {
    // Regions do not overlap: the waiting rows slide to the front.
    if (held > 0) ops_->copy(rows_.data(), rows_.as<std::byte>() + bytes * first_, bytes * held);
    first_ = 0;
    return;
  }
  Buffer larger = ops_->allocate(bytes * static_cast<std::size_t>(std::max(2 * (held + rows), kFirstRows)));
  if (held > 0) ops_->copy(larger.data(), rows_.as<std::byte>() + bytes * first_, bytes * held);
  rows_ = std::move(larger);
  first_ = 0;
}

void DraftHistory::append(TensorView hidden, std::span<const TokenId> tokens) {
  MERERUN_CHECK(hidden.rows == static_cast<int>(tokens.size()) && hidden.cols == hidden_,
                "one token per hidden row");
  if (tokens.empty()) return;
  grow(hidden.rows);
  const auto bytes = bytes_of_row(hidden_);
  std::byte* to = rows_.as<std::byte>() + bytes * static_cast<std::size_t>(first_ + waiting());
  for (int r = 0; r < hidden.rows; ++r) ops_->copy(to + bytes * r, hidden.row<float>(r), bytes);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void DraftHistory::restart_at(int base) {
  cache_ = KvCache(cache_.pool());
  tokens_.clear();
  first_ = 0;
  base_ = base;
}

void DraftHistory::pop_front(int n) {
  MERERUN_CHECK(n >= 0 && n <= waiting(), "pops only what waits");
  tokens_.erase(tokens_.begin(), tokens_.begin() + n);
  first_ = tokens_.empty() ? 0 : first_ + n;
}

TensorView DraftHistory::waiting_hidden() const {
  return make_view(rows_.as<std::byte>() + bytes_of_row(hidden_) * static_cast<std::size_t>(first_),
                   DType::kF32, waiting(), hidden_);
}

DraftHistory DraftHistory::fork() const {
  return restore(*ops_, cache_.fork(), base_, waiting_hidden(), tokens_);
}

DraftHistory DraftHistory::restore(Ops& ops, KvCache cache, int base, TensorView waiting_hidden,
                                   std::span<const TokenId> tokens) {
  MERERUN_CHECK(waiting_hidden.rows == static_cast<int>(tokens.size()), "one token per waiting row");
  DraftHistory history(ops, std::move(cache), waiting_hidden.cols);
  history.base_ = base;
  if (tokens.empty()) return history;
  history.rows_ = ops.allocate(bytes_of_row(waiting_hidden.cols) * tokens.size());
  history.append(waiting_hidden, tokens);
  return history;
}

}  // namespace mererun
