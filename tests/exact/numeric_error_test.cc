// A NaN that reaches the logits ends the request with a numeric error: no token is made from it.

#include <gtest/gtest.h>

#include <cstring>

#include "decode/mtp_drafter.h"
#include "tests/support/generation.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun {
namespace {

using namespace testing;  // NOLINT: the test support's names

/// The tiny dense model with a NaN in the scales of one module.
std::unique_ptr<Model> load_poisoned(const TempFolder& temp, const std::string& tensor,
                                     const std::string& backend) {
  TinyFiles files = make_tiny_checkpoint(tiny_dense());
  StoredTensor& scales = files.tensor(tensor);
  const std::uint16_t nan = 0x7fc0;
  std::memcpy(scales.data.data() + 2 * 3, &nan, sizeof nan);
  files.write(temp / tensor);
  return Model::load(temp / tensor, {}, make_ops(backend), {});
}

TEST(NumericError, ANanInTheTrunkEndsTheRequest) {
  const TempFolder temp;
  for (const char* backend : {"reference", "cpu"}) {
    for (const char* tensor :
         {"language_model.lm_head.scales", "language_model.model.layers.1.linear_attn.out_proj.scales",
          "language_model.model.layers.3.self_attn.k_proj.scales"}) {
      const auto model = load_poisoned(temp, tensor, backend);
      GenerationSetup setup{.prompt = random_ids(10, 256, 1), .max_tokens = 20};
      IdSink sink;
      try {
        run_generation(*model, setup, sink);
        ADD_FAILURE() << tensor << " on " << backend << ": a token was made from NaN";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNumeric) << error.what();
      }
      EXPECT_TRUE(sink.ids.empty());
    }
  }
}

TEST(NumericError, ANanInTheDraftHeadCostsOnlyDrafts) {
  const TempFolder temp;
  const auto model = load_poisoned(temp, "layers.0.mlp.down_proj.scales", "cpu");
  const auto prompt = random_ids(10, 256, 1);
  MtpDrafter drafter(*model);
  GenerationSetup setup{.prompt = prompt, .max_tokens = 40, .width = 4, .drafter = &drafter};
  IdSink sink;
  EXPECT_EQ(run_generation(*model, setup, sink).ids, run_oracle(*model, prompt, 40).ids);
}

}  // namespace
}  // namespace mererun
