#include "model/ngram_hash.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/split_mix.h"

namespace mererun {

namespace {

bool is_prime(std::int64_t n) {
  if (n < 2) return false;
  for (std::int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return true;
}

}  // namespace

NgramBuffers make_ngram_buffers(const FlashConfig& config, int vocabulary) {
  NgramBuffers buffers;
  std::int64_t offset = 0;
  for (std::int64_t p = config.ngram_vocab_base;
       static_cast<int>(buffers.head_sizes.size()) < config.ngram_heads(); ++p) {
    if (!is_prime(p)) continue;
    buffers.head_sizes.push_back(p);
    buffers.head_offsets.push_back(offset);
    offset += p;
  }
  // Products of an id and a multiplier stay below 2^63.
  const auto half = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / vocabulary / 2);
  for (int i = 0; i < config.ngram_size; ++i) {
    // A generator of its own for each position, of which the first number is taken.
    const std::uint64_t state = static_cast<std::uint64_t>(config.ngram_seed) +
                                kSplitMixIncrement * (static_cast<std::uint64_t>(i) + 2);
    buffers.multipliers.push_back(static_cast<std::int64_t>(2 * (split_mix(state) % half) + 1));
  }
  return buffers;
}

std::int64_t ngram_table_rows(const FlashConfig& config, const NgramBuffers& buffers) {
  const std::int64_t used = buffers.head_offsets.back() + buffers.head_sizes.back();
  const std::int64_t multiple = config.ngram_vocab_multiple;
  return (used + multiple - 1) / multiple * multiple;
}

NgramHash::NgramHash(const FlashConfig& config, NgramBuffers buffers)
    : size_(config.ngram_size),
      heads_per_size_(config.heads_per_ngram),
      cut_(config.ngram_cut),
      buffers_(std::move(buffers)) {}

void NgramHash::append_rows(std::span<const TokenId> context, std::span<const TokenId> ids,
                            std::vector<std::int64_t>& rows) const {
  MERERUN_CHECK(static_cast<int>(context.size()) == context_tokens(), "the ids before the first");
  const auto before = [&](std::size_t at, int back) {
    const auto b = static_cast<std::size_t>(back);
    return at >= b ? ids[at - b] : context[context.size() + at - b];
  };
  const auto product = [&](TokenId id, int position) {
    return static_cast<std::uint64_t>(id) *
           static_cast<std::uint64_t>(buffers_.multipliers[static_cast<std::size_t>(position)]);
  };
  for (std::size_t t = 0; t < ids.size(); ++t) {
    std::uint64_t hash = product(ids[t], 0);
    bool is_cut = false;
    for (int j = 1; j < size_; ++j) {
      const TokenId id = before(t, j);
      is_cut = is_cut || id == cut_;
      hash ^= product(is_cut ? cut_ : id, j);
      for (int h = 0; h < heads_per_size_; ++h) {
        const auto head = static_cast<std::size_t>((j - 1) * heads_per_size_ + h);
        const auto size = static_cast<std::uint64_t>(buffers_.head_sizes[head]);
        rows.push_back(static_cast<std::int64_t>(hash % size) + buffers_.head_offsets[head]);
      }
    }
  }
}

}  // namespace mererun
