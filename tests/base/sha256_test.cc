#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace mererun {
namespace {

TEST(Sha256, MatchesPublishedVectors) {
  // FIPS 180-4 example messages.
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesHashLikeTheWhole) {
  const std::string text =
      "The quick brown fox jumps over the lazy dog, and then once more for good measure, twice.";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.update(text.substr(0, cut));
    hash.update(std::string_view(text).substr(cut));
    EXPECT_EQ(hash.finish_hex(), sha256_hex(text)) << cut;
  }
}

TEST(Sha256, StartsOverAfterFinishing) {
  Sha256 hash;
  hash.update("something");
  hash.finish();
  hash.update("abc");
  EXPECT_EQ(hash.finish_hex(), sha256_hex("abc"));
}

}  // namespace
}  // namespace mererun
