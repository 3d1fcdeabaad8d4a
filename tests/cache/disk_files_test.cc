// Sealed files and the names of pages: no damage passes, no two sequences share a name.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "cache/prefix_digest.h"
#include "cache/sealed_file.h"
#include "tests/cache/small_states.h"
#include "tests/support/temp_folder.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::byte> bytes(std::size_t n) {
  std::vector<std::byte> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>((i * 131 + i / 251) & 0xff);
  return out;
}

bool is_sound(const fs::path& path) { return SealedFile::read(path).has_value(); }

TEST(SealedFile, GivesBackItsSections) {
  const testing::TempFolder temp;
  for (const std::size_t n : {0u, 1u, 4096u, (1u << 20) - 1, 1u << 20, (1u << 20) + 1, 3u << 20}) {
    const auto a = bytes(n);
    const auto b = bytes(77);
    const FileSection sections[] = {{7, a}, {9, b}, {12, {}}};
    const fs::path path = temp / "file";
    const std::uint64_t size = SealedFile::write(path, sections);
    EXPECT_EQ(size, fs::file_size(path));
    EXPECT_EQ(size, SealedFile::size_of(sections));
    const auto file = SealedFile::read(path);
    ASSERT_TRUE(file) << n;
    EXPECT_TRUE(std::ranges::equal(file->section(7), a));
    EXPECT_TRUE(std::ranges::equal(file->section(9), b));
    EXPECT_TRUE(file->section(12).empty());
    EXPECT_TRUE(file->section(1).empty());
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(temp.path()), {}), 1) << "no temporary file stays";
}

TEST(SealedFile, EveryFlippedBitAndEveryTruncationIsFound) {  // prefix.corrupt_file_sweep
  const testing::TempFolder temp;
  const auto a = bytes(150);
  const auto b = bytes(33);
  const FileSection sections[] = {{1, a}, {2, b}};
  const fs::path path = temp / "file";
  SealedFile::write(path, sections);
  const std::string whole = read(path);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      testing::write_file(path, damaged);
      // Two bytes of the header and two of each table entry are reserved zeros; they are checked as well.
      ASSERT_FALSE(is_sound(path)) << "byte " << i << " bit " << bit;
    }
    testing::write_file(path, whole.substr(0, i));
    ASSERT_FALSE(is_sound(path)) << "cut to " << i;
  }
  testing::write_file(path, whole + "x");
  EXPECT_FALSE(is_sound(path));
  testing::write_file(path, whole);
  EXPECT_TRUE(is_sound(path));
}

TEST(SealedFile, AnAbsentOrUnwritableFileIsAnError) {
  const testing::TempFolder temp;
  EXPECT_THROW(SealedFile::read(temp / "none"), Error);
  EXPECT_FALSE(SealedFile::read(temp.path())) << "a folder in place of a file";
  EXPECT_THROW(SealedFile::write(temp / "no" / "folder", {}), Error);
}

TEST(PrefixDigests, NamesFollowTheTokensBeforeAndNothingElse) {
  const auto ids = testing::count_up(1, 1025);
  const PrefixDigests digests(ids);
  std::set<PrefixDigest> seen{digests.whole()};
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(seen.insert(digests.trunk_page(i)).second);
    EXPECT_TRUE(seen.insert(digests.head_page(i)).second);
  }
  auto longer = ids;
  longer.push_back(5);
  EXPECT_EQ(PrefixDigests(longer).trunk_page(3), digests.trunk_page(3));
  EXPECT_NE(PrefixDigests(longer).whole(), digests.whole());
  for (const std::size_t at : {0u, 255u, 256u, 600u, 1023u, 1024u}) {
    auto other = ids;
    other[at] += 7;
    const PrefixDigests changed(other);
    for (int i = 0; i < 4; ++i) {
      const bool inside = at < static_cast<std::size_t>(256 * (i + 1));
      EXPECT_EQ(changed.trunk_page(i) == digests.trunk_page(i), !inside) << at;
      // The last transition of a head page ends in the token after the page.
      EXPECT_EQ(changed.head_page(i) == digests.head_page(i), at > static_cast<std::size_t>(256 * (i + 1)))
          << at;
    }
    EXPECT_NE(changed.whole(), digests.whole());
  }
}

TEST(PrefixDigestsDeathTest, APageOfTheHeadNeedsTheTokenBehindIt) {
  const std::vector<TokenId> ids = testing::count_up(0, 257);
  (void)PrefixDigests(ids).head_page(0);
  EXPECT_DEATH(PrefixDigests(std::span(ids).first(256)).head_page(0), "token after the page");
}

}  // namespace
}  // namespace mererun
