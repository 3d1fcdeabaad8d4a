// The tiny Hugging Face checkpoints of the full golden set against their twins in the MLX layout. The twins
// were made by another implementation, which chooses codes with the scale already rounded to BF16: its
// scales, biases and unquantised values must be equal in every byte, its codes may differ by one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "convert/convert.h"
#include "tests/support/models.h"
#include "tests/support/temp_folder.h"

namespace mererun::testing {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json config_of(const fs::path& folder) {
  std::ifstream stream(folder / "config.json");
  return Json::parse(stream);
}

std::int64_t code_at(const TensorEntry& codes, std::int64_t bits, std::int64_t index) {
  std::int64_t code = 0;
  for (std::int64_t b = 0; b < bits; ++b) {
    const std::int64_t at = index * bits + b;
    code |= static_cast<std::int64_t>((static_cast<unsigned>(codes.data[at / 8]) >> (at % 8)) & 1u) << b;
  }
  return code;
}

/// Code streams have no padding between rows, so a whole tensor is one stream.
void expect_close_codes(const TensorEntry& got, const TensorEntry& want, const TensorEntry& scales) {
  ASSERT_EQ(got.shape, want.shape) << want.name;
  const auto groups = static_cast<std::int64_t>(scales.num_elements());
  const auto words = static_cast<std::int64_t>(want.num_elements());
  // Groups of 64, but of 32 in n-gram tables, fix the bits: bits * group = 32 * words / groups.
  const std::int64_t group = want.name.find("ngram_embedding") != std::string::npos ? 32 : 64;
  const std::int64_t bits = 32 * words / groups / group;
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < groups * group; ++i) {
    const std::int64_t distance = std::abs(code_at(got, bits, i) - code_at(want, bits, i));
    ASSERT_LE(distance, 1) << want.name << " " << i;
    different += distance;
  }
  EXPECT_LE(different, groups * group * (bits == 8 ? 50 : 3) / 100) << want.name;
}

float value_at(const TensorEntry& tensor, std::uint64_t index) {
  if (tensor.dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, tensor.data + 4 * index, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, tensor.data + 2 * index, sizeof(bits));
  return bf16_to_f32(bits);
}

void expect_equal(const Checkpoint& result, const Checkpoint& golden) {
  EXPECT_EQ(result.tensors().size(), golden.tensors().size());
  for (const TensorEntry& want : golden.tensors()) {
    const TensorEntry* got = result.find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    if (want.dtype == DType::kU32) {
      const std::string module = want.name.substr(0, want.name.size() - std::string_view(".weight").size());
      expect_close_codes(*got, want, *golden.find(module + ".scales"));
      continue;
    }
    ASSERT_EQ(got->shape, want.shape) << want.name;
    if (want.dtype == got->dtype) {
      EXPECT_EQ(std::memcmp(got->data, want.data, want.bytes), 0) << want.name;
      continue;
    }
    // The twins widen dt_bias to F32, MLX keeps it in BF16.
    for (std::uint64_t i = 0; i < want.num_elements(); ++i)
      ASSERT_EQ(value_at(*got, i), value_at(want, i)) << want.name << " " << i;
  }
}

void expect_golden(const std::string& name, const std::string& profile) {
  const std::optional<fs::path> golden = full_golden_dir();
  if (!golden) return;
  const TempFolder folder;
  ConversionOptions options;
  options.source = *golden / name / "hf";
  options.output = folder / "mlx";
  options.threads = 2;
  options.recipe.profile = profile;
  convert_checkpoint(options);
  const fs::path twin = *golden / name / "mlx";
  expect_equal(Checkpoint::open(options.output), Checkpoint::open(twin));
  const DraftHeadPlace head{DraftHeadPlaceKind::kFolder, {}, {}};
  const auto open_head = [&](const fs::path& at) {
    DraftHeadPlace place = head;
    place.folder = at / "mtp";
    place.files = {at / "mtp" / "model.safetensors"};
    return Checkpoint::open_sidecar(place);
  };
  expect_equal(open_head(options.output), open_head(twin));
  EXPECT_EQ(config_of(options.output)["quantization"], config_of(twin)["quantization"]);
}

// Without MERERUN_GOLDEN_DIR these pass at once; the conversions of tiny checkpoints elsewhere do not need
// it.
TEST(GoldenConvert, TinyDense) { expect_golden("tiny-dense", "q4"); }
TEST(GoldenConvert, TinyMoe) { expect_golden("tiny-moe", "q4"); }
TEST(GoldenConvert, TinyFlash) { expect_golden("tiny-flash", "q3-activation"); }

}  // namespace

}  // namespace mererun::testing
