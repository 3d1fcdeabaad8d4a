#include "checkpoint/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/checkpoint/test_files.h"

namespace mererun {
namespace {

using testing::image_of_u8_tensors;
using testing::TempFolder;

constexpr std::size_t kTensorBytes = 3u << 20;

void write_model(const TempFolder& folder) {
  folder.write("config.json", "{}");
  folder.write("tokenizer.json", "t");
  folder.write("chat_template.jinja", "c");
  folder.write("model.safetensors", image_of_u8_tensors({"model.a"}, kTensorBytes));
  folder.write("mtp/model.safetensors", image_of_u8_tensors({"fc.weight"}));
}

std::string fingerprint_of(const TempFolder& folder) {
  return fingerprint(Checkpoint::open(folder.path()), nullptr);
}

void poke(const std::filesystem::path& path, std::int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-from_end, std::ios::end);
  file.put('!');
}

TEST(Fingerprint, IsTheSameForACopyElsewhere) {
  const TempFolder one;
  const TempFolder two;
  write_model(one);
  write_model(two);
  EXPECT_THAT(fingerprint_of(one), ::testing::MatchesRegex("[0-9a-f]{64}"));
  EXPECT_EQ(fingerprint_of(one), fingerprint_of(two));
}

TEST(Fingerprint, EveryPartChangesIt) {
  const TempFolder folder;
  write_model(folder);
  std::set<std::string> seen = {fingerprint_of(folder)};
  const auto expect_new = [&](const char* what) {
    EXPECT_TRUE(seen.insert(fingerprint_of(folder)).second) << what;
  };
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "chat_template.json"}) {
    folder.write(name, R"({"changed":1})");
    expect_new(name);
  }
  folder.write("mererun.json", "");
  expect_new("an empty file is not an absent one");
  folder.write("model.safetensors", image_of_u8_tensors({"model.b"}, kTensorBytes));
  expect_new("header");
  folder.write("model.safetensors", image_of_u8_tensors({"model.b"}, kTensorBytes + 1));
  expect_new("size");
  poke(folder / "model.safetensors", 1);
  expect_new("last byte");
  poke(folder / "model.safetensors", kTensorBytes + 1);
  expect_new("first data byte");
  folder.write("more.safetensors", image_of_u8_tensors({"model.c"}));
  expect_new("a file more");
  poke(folder / "more.safetensors", 2);
  expect_new("any byte of a small file");

  const Checkpoint trunk = Checkpoint::open(folder.path());
  const Checkpoint head = Checkpoint::open_sidecar(find_draft_head_files(folder.path()).back());
  const std::string with_head = fingerprint(trunk, &head);
  EXPECT_TRUE(seen.insert(with_head).second);
  poke(folder / "mtp/model.safetensors", 1);
  EXPECT_NE(fingerprint(trunk, &head), with_head);
}

TEST(Fingerprint, SamplesLargeFilesInsteadOfReadingThem) {
  const TempFolder folder;
  write_model(folder);
  const std::string before = fingerprint_of(folder);
  // Windows of 4 KiB start every (3 MiB - 4 KiB) / 63 = 49,867 bytes: byte 20,000 is in none.
  poke(folder / "model.safetensors", kTensorBytes - 20000);
  EXPECT_EQ(fingerprint_of(folder), before);
  poke(folder / "model.safetensors", kTensorBytes - 49867 * 30);
  EXPECT_NE(fingerprint_of(folder), before);
}

}  // namespace
}  // namespace mererun
