#include "tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <queue>
#include <utility>

#include "base/error.h"

namespace mererun {

namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
constexpr TokenId kNoToken = -1;
// Below this many bytes a linear search for the lowest rank beats a heap.
constexpr std::size_t kShortPiece = 96;

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}

std::uint64_t hash_bytes(std::string_view bytes) {
  std::uint64_t h = bytes.size() * 0xD6E8FEB86659FD93u;
  while (bytes.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    h = mix(h ^ word) * 0xC2B2AE3D27D4EB4Fu;
    bytes.remove_prefix(8);
  }
  std::uint64_t tail = 0;
  std::memcpy(&tail, bytes.data(), bytes.size());
  return mix(h ^ tail) * 0xC2B2AE3D27D4EB4Fu;
}

std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

// A power of two that leaves the table at most half full.
std::size_t table_size(std::size_t entries) { return std::bit_ceil(std::max<std::size_t>(entries * 2, 8)); }

std::string quoted(std::string_view bytes) {
  std::string text = "\"";
  for (const char c : bytes.substr(0, 40)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte >= 0x20 && byte < 0x7F ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return text + (bytes.size() > 40 ? "...\"" : "\"");
}

}  // namespace

/// A token of a long piece that is being merged; a doubly linked list over byte positions.
struct Bpe::Node {
  TokenId id;
  std::uint32_t rank;  // of the merge with the next node; kNoRank if none, or if this node is gone
  std::int32_t previous;
  std::int32_t next;
};

Bpe::Bpe(TokenizerFile&& file) {
  bytes_ = std::move(file.bytes);
  add_vocabulary(file);
  add_merges(file);
  memo_ = std::make_unique<std::atomic<Memo>[]>(token_slices_.size());
}

void Bpe::add_vocabulary(const TokenizerFile& file) {
  const auto corrupt = [&](std::string_view expected, const std::string& got) {
    fail_expected(ErrorCode::kCorruptData, file.name + ": model.vocab", expected, got);
  };
  TokenId last = kNoToken;
  for (const auto& entry : file.vocab) last = std::max(last, entry.id);
  token_slices_.resize(static_cast<std::size_t>(last + 1));
  vocab_slots_.assign(table_size(file.vocab.size()), {0, kNoToken});
  for (const auto& entry : file.vocab) {
    const std::string_view bytes = std::string_view(bytes_).substr(entry.bytes.offset, entry.bytes.length);
    if (bytes.empty()) corrupt("non-empty keys", "an empty key");
    if (token_slices_[entry.id].length != 0)
      corrupt("ids that occur once", fmt::format("id {} twice", entry.id));
    const std::uint64_t hash = hash_bytes(bytes);
    VocabSlot& slot = vocab_slots_[vocab_slot(bytes, hash)];
    if (slot.id != kNoToken) corrupt("keys that occur once", quoted(bytes) + " twice");
    slot = {tag_of(hash), entry.id};
    token_slices_[entry.id] = entry.bytes;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const std::optional<TokenId> id = find(std::string_view(&c, 1));
    if (!id) corrupt("a token for each of the 256 bytes", fmt::format("none for byte 0x{:02x}", byte));
    byte_tokens_[byte] = *id;
  }
}

void Bpe::add_merges(const TokenizerFile& file) {
  merge_slots_.assign(table_size(file.merges.size()), {0, kNoRank, kNoToken});
  const std::size_t mask = merge_slots_.size() - 1;
  std::string joined;
  TokenId merged = kNoToken;
  for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto text = [&](TokenizerFile::Slice s) {
      return std::string_view(bytes_).substr(s.offset, s.length);
    };
    const auto token = [&](std::string_view bytes) {
      const std::optional<TokenId> id = find(bytes);
      if (!id) {
        fail_expected(ErrorCode::kCorruptData, fmt::format("{}: model.merges[{}]", file.name, rank),
                      "parts and result in model.vocab", quoted(bytes));
      }
      return *id;
    };
    const std::string_view left = text(file.merges[rank].left);
    const std::string_view right = text(file.merges[rank].right);
    joined.assign(left).append(right);
    const std::uint64_t pair = pair_key(token(left), token(right));
    std::size_t slot = mix(pair) & mask;
    while (merge_slots_[slot].rank != kNoRank && merge_slots_[slot].pair != pair) slot = (slot + 1) & mask;
    // A pair listed twice keeps its last rank, as in the reference implementation.
    // Training numbers the results of merges in order: look there before asking the table.
    merged = token_bytes(merged + 1) == joined ? merged + 1 : token(joined);
    merge_slots_[slot] = {pair, static_cast<std::uint32_t>(rank), merged};
  }
}

// The slot that holds `bytes`, or the free one where it would go.
std::size_t Bpe::vocab_slot(std::string_view bytes, std::uint64_t hash) const {
  const std::size_t mask = vocab_slots_.size() - 1;
  std::size_t slot = (hash >> 16) & mask;
  while (vocab_slots_[slot].id != kNoToken &&
         (vocab_slots_[slot].tag != tag_of(hash) || token_bytes(vocab_slots_[slot].id) != bytes)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

std::optional<TokenId> Bpe::find(std::string_view bytes) const {
  const VocabSlot& slot = vocab_slots_[vocab_slot(bytes, hash_bytes(bytes))];
  if (slot.id == kNoToken) return std::nullopt;
  return slot.id;
}

std::string_view Bpe::token_bytes(TokenId id) const {
  if (id < 0 || id >= id_end()) return {};
  const TokenizerFile::Slice slice = token_slices_[id];
  return {bytes_.data() + slice.offset, slice.length};
}

const Bpe::MergeSlot& Bpe::merge_slot(TokenId left, TokenId right) const {
  const std::uint64_t pair = pair_key(left, right);
  const std::size_t mask = merge_slots_.size() - 1;
  std::size_t slot = mix(pair) & mask;
  while (merge_slots_[slot].rank != kNoRank && merge_slots_[slot].pair != pair) slot = (slot + 1) & mask;
  return merge_slots_[slot];
}

void Bpe::encode_piece(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.size() == 1) {
    out.push_back(byte_tokens_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  // Most pieces of ordinary text are tokens. Not every token can be reached by merges, hence the memo.
  const std::optional<TokenId> whole = find(piece);
  if (whole && encodes_to_itself(*whole, piece)) {
    out.push_back(*whole);
  } else if (piece.size() <= kShortPiece) {
    merge_short(piece, out);
  } else {
    merge_long(piece, out);
  }
}

bool Bpe::encodes_to_itself(TokenId id, std::string_view bytes) const {
  Memo memo = memo_[id].load(std::memory_order_relaxed);
  if (memo == Memo::kUnknown) {
    std::vector<TokenId> tokens;
    if (bytes.size() <= kShortPiece) {
      merge_short(bytes, tokens);
    } else {
      merge_long(bytes, tokens);
    }
    memo = tokens.size() == 1 && tokens[0] == id ? Memo::kEncodesToItself : Memo::kSplits;
    memo_[id].store(memo, std::memory_order_relaxed);
  }
  return memo == Memo::kEncodesToItself;
}

void Bpe::merge_short(std::string_view piece, std::vector<TokenId>& out) const {
  std::array<TokenId, kShortPiece> ids;
  std::array<std::uint32_t, kShortPiece> ranks;  // of the pair (i, i + 1)
  std::array<TokenId, kShortPiece> merged;       // what that pair becomes
  std::size_t n = piece.size();
  for (std::size_t i = 0; i < n; ++i) ids[i] = byte_tokens_[static_cast<unsigned char>(piece[i])];
  const auto look_up = [&](std::size_t i) {
    const MergeSlot& slot = merge_slot(ids[i], ids[i + 1]);
    ranks[i] = slot.rank;
    merged[i] = slot.merged;
  };
  for (std::size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(n - 1));
    if (*best == kNoRank) break;
    const auto i = static_cast<std::size_t>(best - ranks.begin());
    ids[i] = merged[i];
    std::copy(ids.begin() + i + 2, ids.begin() + n, ids.begin() + i + 1);
    std::copy(ranks.begin() + i + 1, ranks.begin() + n - 1, ranks.begin() + i);
    std::copy(merged.begin() + i + 1, merged.begin() + n - 1, merged.begin() + i);
    --n;
    if (i > 0) look_up(i - 1);
    if (i + 1 < n) look_up(i);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
}

void Bpe::merge_long(std::string_view piece, std::vector<TokenId>& out) const {
  const auto n = static_cast<std::int32_t>(piece.size());
  std::vector<Node> nodes(piece.size());
  for (std::int32_t i = 0; i < n; ++i) {
    nodes[i] = {byte_tokens_[static_cast<unsigned char>(piece[i])], kNoRank, i - 1, i + 1 < n ? i + 1 : -1};
  }
  const auto rank_at = [&](std::int32_t i) {
    return nodes[i].next < 0 ? kNoRank : merge_slot(nodes[i].id, nodes[nodes[i].next].id).rank;
  };
  // Candidates ordered by rank, then position. An entry whose rank is no longer its node's is out of date.
  std::vector<std::uint64_t> initial;
  for (std::int32_t i = 0; i < n; ++i) {
    nodes[i].rank = rank_at(i);
    if (nodes[i].rank != kNoRank)
      initial.push_back(std::uint64_t{nodes[i].rank} << 32 | static_cast<std::uint32_t>(i));
  }
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> queue(std::greater<>{},
                                                                                       std::move(initial));
  const auto refresh = [&](std::int32_t i) {
    const std::uint32_t rank = rank_at(i);
    if (rank == nodes[i].rank) return;  // still queued under this rank, or without one
    nodes[i].rank = rank;
    if (rank != kNoRank) queue.push(std::uint64_t{rank} << 32 | static_cast<std::uint32_t>(i));
  };
  while (!queue.empty()) {
    const auto rank = static_cast<std::uint32_t>(queue.top() >> 32);
    const auto i = static_cast<std::int32_t>(queue.top() & 0xFFFFFFFFu);
    queue.pop();
    if (nodes[i].rank != rank) continue;
    Node& left = nodes[i];
    Node& right = nodes[left.next];
    left.id = merge_slot(left.id, right.id).merged;
    right.rank = kNoRank;
    left.next = right.next;
    if (left.next >= 0) nodes[left.next].previous = i;
    left.rank = kNoRank;  // its queue entry is gone
    refresh(i);
    if (left.previous >= 0) refresh(left.previous);
  }
  for (std::int32_t i = 0; i >= 0; i = nodes[i].next) out.push_back(nodes[i].id);
}

}  // namespace mererun
