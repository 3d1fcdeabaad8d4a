#include "checkpoint/tensor_entry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "checkpoint/tensor_names.h"

namespace mererun {
namespace {

/// Elements at an odd address, as a safetensors file may have them.
template <typename Word>
struct Unaligned {
  std::vector<std::byte> bytes;
  TensorEntry entry;

  Unaligned(DType dtype, const std::vector<Word>& words) : bytes(1 + words.size() * sizeof(Word)) {
    std::ranges::copy(std::as_bytes(std::span(words)), bytes.begin() + 1);
    entry.dtype = dtype;
    entry.shape = {static_cast<std::int64_t>(words.size())};
    entry.data = bytes.data() + 1;
    entry.bytes = words.size() * sizeof(Word);
  }
};

template <typename Word>
void expect_found_everywhere(DType dtype, Word largest_finite, const std::vector<Word>& bad) {
  for (const std::size_t size : {1u, 7u, 4095u, 4096u, 4097u, 10000u}) {
    std::vector<Word> words(size, largest_finite);
    EXPECT_EQ(find_non_finite(Unaligned<Word>(dtype, words).entry), std::nullopt);
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
      for (const Word value : bad) {
        std::vector<Word> changed = words;
        changed[at] = value;
        changed.back() = value;  // only the first counts
        EXPECT_EQ(find_non_finite(Unaligned<Word>(dtype, changed).entry), at) << size;
      }
    }
  }
}

TEST(FindNonFinite, ReportsTheFirstNanOrInfinity) {
  expect_found_everywhere<std::uint16_t>(DType::kBF16, 0x7f7f, {0x7f80, 0xff80, 0x7fc0, 0xff81});
  expect_found_everywhere<std::uint16_t>(DType::kF16, 0xfbff, {0x7c00, 0xfc00, 0x7e00, 0x7c01});
  expect_found_everywhere<std::uint32_t>(DType::kF32, 0xff7fffff,
                                         {0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001});
  expect_found_everywhere<std::uint8_t>(DType::kF8E4M3, 0x7e, {0x7f, 0xff});
}

TEST(FindNonFinite, HasNothingToSayAboutIntegersAndEmptyTensors) {
  EXPECT_EQ(find_non_finite(Unaligned<std::uint32_t>(DType::kU32, {0x7f800000}).entry), std::nullopt);
  EXPECT_EQ(find_non_finite(Unaligned<std::uint16_t>(DType::kBF16, {}).entry), std::nullopt);
}

TEST(TensorNames, EveryPrefixLeadsToOneName) {
  for (const char* prefix :
       {"", "model.", "language_model.", "model.language_model.", "language_model.model."}) {
    for (const char* rest :
         {"layers.0.mlp.gate.weight", "embed_tokens.weight", "norm.weight", "lm_head.weight", "mtp.fc.weight",
          "layers.3.self_attn.q_proj", "draft_lm_head.scales"}) {
      EXPECT_EQ(canonical_name(std::string(prefix) + rest), rest);
    }
  }
  EXPECT_EQ(canonical_name("mtp.draft_lm_head.weight"), "draft_lm_head.weight");
}

TEST(TensorNames, OnlyOnePrefixIsStripped) {
  EXPECT_EQ(canonical_name("model.model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(canonical_name("model."), "model.");
  EXPECT_EQ(canonical_name("models.norm"), "models.norm");
  EXPECT_EQ(canonical_name(""), "");
}

TEST(TensorNames, VisionTensorsKeepTheirNames) {
  for (const char* name : {"visual.blocks.0.norm1.weight", "vision_tower.merger.norm.weight",
                           "model.visual.patch_embed.proj.weight", "model.vision_tower.a"}) {
    EXPECT_TRUE(is_vision_name(name));
    EXPECT_EQ(canonical_name(name), name);
  }
  EXPECT_FALSE(is_vision_name("layers.0.visual.weight"));
  EXPECT_FALSE(is_vision_name("visuals.weight"));
}

}  // namespace
}  // namespace mererun
