#include "cache/prefix_digest.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/sha256.h"
#include "kernels/attention.h"

namespace mererun {
namespace {

constexpr std::size_t kBlock = kKvPagePositions;

PrefixDigest digest(std::string_view label, const PrefixDigest& before, std::span<const TokenId> ids) {
  Sha256 hash;
  hash.update(label);
  hash.update(std::as_bytes(std::span(before)));
  hash.update(std::as_bytes(ids));
  return hash.finish();
}

}  // namespace

std::string short_hex(const PrefixDigest& digest) {
  std::string text;
  for (std::size_t i = 0; i < 16; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

PrefixDigests::PrefixDigests(std::span<const TokenId> ids) : ids_(ids) {
  chain_.push_back({});
  for (std::size_t at = 0; at + kBlock <= ids.size(); at += kBlock)
    chain_.push_back(digest("block", chain_.back(), ids.subspan(at, kBlock)));
}

PrefixDigest PrefixDigests::trunk_page(int i) const {
  return digest("trunk", chain_.at(static_cast<std::size_t>(i) + 1), {});
}

PrefixDigest PrefixDigests::head_page(int i) const {
  const auto blocks = static_cast<std::size_t>(i) + 1;
  MERERUN_CHECK(blocks * kBlock < ids_.size(), "the token after the block is known");
  return digest("head", chain_.at(blocks), ids_.subspan(blocks * kBlock, 1));
}

PrefixDigest PrefixDigests::whole() const {
  return digest("whole", chain_.back(), ids_.subspan((chain_.size() - 1) * kBlock));
}

}  // namespace mererun
