#include "cache/prefix_digest.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/sha256.h"
#include "kernels/attention.h"

namespace mererun {
namespace {

constexpr std::size_t kPage = kKvPagePositions;

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
  for (std::size_t at = 0; at + kPage <= ids.size(); at += kPage)
    chain_.push_back(digest("block", chain_.back(), ids.subspan(at, kPage)));
}

PrefixDigest PrefixDigests::trunk_page(int i) const {
  return digest("trunk", chain_.at(static_cast<std::size_t>(i) + 1), {});
}

PrefixDigest PrefixDigests::head_page(int i) const {
  const auto pages = static_cast<std::size_t>(i) + 1;
  MERERUN_CHECK(pages * kPage < ids_.size(), "the token after the page is known");
  return digest("head", chain_.at(pages), ids_.subspan(pages * kPage, 1));
}

PrefixDigest PrefixDigests::whole() const {
  return digest("whole", chain_.back(), ids_.subspan((chain_.size() - 1) * kPage));
}

}  // namespace mererun
