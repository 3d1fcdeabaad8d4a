#include "checkpoint/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tests/checkpoint/test_files.h"

namespace mererun {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

TEST(MappedFile, MapsTheBytesAndSurvivesAMove) {
  const testing::TempFolder folder;
  MappedFile first(folder.write("a.bin", "hello"));
  MappedFile second = std::move(first);
  EXPECT_EQ(second.size(), 5u);
  EXPECT_EQ(std::memcmp(second.data(), "hello", 5), 0);
  EXPECT_EQ(second.path(), folder / "a.bin");
  EXPECT_EQ(first.size(), 0u);
  MappedFile third(folder.write("b.bin", "other"));
  third = std::move(second);
  EXPECT_EQ(std::memcmp(third.data(), "hello", 5), 0);
}

TEST(MappedFile, EmptyFileHasNoBytes) {
  const testing::TempFolder folder;
  const MappedFile file(folder.write("empty", ""));
  EXPECT_EQ(file.size(), 0u);
  EXPECT_TRUE(file.bytes().empty());
  file.advise_sequential();
  file.drop_pages(file.data(), 0);
}

TEST(MappedFile, AdviceLeavesTheContentAlone) {
  const testing::TempFolder folder;
  std::string content(5 * 4096 + 100, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7);
  const MappedFile file(folder.write("a.bin", content));
  file.advise_sequential();
  for (std::uint64_t first : {0u, 1u, 4095u, 4096u, 10000u}) {
    for (std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4096}, std::uint64_t{8200},
                                file.size() - first}) {
      file.drop_pages(file.data() + first, bytes);
      ASSERT_EQ(std::memcmp(file.data(), content.data(), content.size()), 0) << first << " " << bytes;
    }
  }
}

TEST(MappedFile, DropPagesReturnsMemory) {
  const testing::TempFolder folder;
  const std::size_t size = std::size_t{4} << 20;
  const MappedFile file(folder.write("a.bin", std::string(size, 'x')));
  const auto resident_kib = [&] {  // of this mapping
    std::FILE* smaps = std::fopen("/proc/self/smaps", "r");
    char line[512];
    bool ours = false;
    long kib = -1;
    while (std::fgets(line, sizeof line, smaps) != nullptr) {
      if (std::strstr(line, "a.bin") != nullptr) ours = true;
      if (ours && std::sscanf(line, "Rss: %ld kB", &kib) == 1) break;
    }
    std::fclose(smaps);
    return kib;
  };
  long sum = 0;
  for (const std::byte b : file.bytes()) sum += std::to_integer<long>(b);
  EXPECT_EQ(sum, static_cast<long>(size) * 'x');
  EXPECT_GE(resident_kib(), 4096);
  file.drop_pages(file.data(), size / 2 + 1);  // one byte of a page that must stay
  const long left = resident_kib();
  EXPECT_GE(left, 2048);
  EXPECT_LT(left, 4096);
}

TEST(MappedFile, FollowsSymbolicLinks) {
  const testing::TempFolder folder;
  folder.write("blobs/abc", "content");
  std::filesystem::create_symlink("blobs/abc", folder / "link");
  EXPECT_EQ(MappedFile(folder / "link").size(), 7u);
}

TEST(MappedFile, MissingFilesAreNotFound) {
  const testing::TempFolder folder;
  folder.write("file", "x");
  std::filesystem::create_symlink("nowhere", folder / "broken");
  for (const char* name : {"absent", "broken", "file/below"}) {
    const Error error = error_of([&] { MappedFile file(folder / name); });
    EXPECT_EQ(error.code(), ErrorCode::kNotFound) << name;
    EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr("expected a readable file"))) << name;
  }
}

TEST(MappedFile, OtherKindsOfFileAreIoErrors) {
  const testing::TempFolder folder;
  std::filesystem::create_directory(folder / "folder");
  std::filesystem::create_symlink("loop", folder / "loop");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);  // opening must not wait for a writer
  for (const char* name : {"folder", "loop", "fifo"}) {
    EXPECT_EQ(error_of([&] { MappedFile file(folder / name); }).code(), ErrorCode::kIo) << name;
  }
  EXPECT_EQ(error_of([] { MappedFile file("/dev/null"); }).code(), ErrorCode::kIo);
}

TEST(MappedFile, UnreadableFileIsAnIoErrorThatSaysSo) {
  const testing::TempFolder folder;
  const auto path = folder.write("secret", "x");
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  // The superuser reads everything: step down for the attempt.
  const bool is_root = ::geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const Error error = error_of([&] { MappedFile file(path); });
  if (is_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("secret"), HasSubstr("Permission denied")));
}

}  // namespace
}  // namespace mererun
