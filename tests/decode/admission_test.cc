#include "decode/admission.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mererun {
namespace {

struct Model {
  const char* name;
  AdmissionTraits traits;
};

const Model kDense27bQ4 = {"27B Q4", {.default_on = true, .default_width = 8, .width_cap = 9}};
const Model kDemoDense = {"demo-dense", {.default_on = true, .default_width = 8, .width_cap = 9}};
const Model kDense27bBf16 = {"27B BF16", {.default_width = 8}};
const Model kOrnith9b = {"Ornith-9B", {}};
const Model kLocalDense = {"local dense", {}};
const Model kOrnithQ4 = {"Ornith Q4", {.uses_moe = true}};
const Model kDemoMoe = {"demo-moe", {.default_on = true, .uses_moe = true}};
const Model kFlashNext = {"Flash-Next", {.uses_moe = true, .is_flash_next = true}};
const Model kNano = {"q36-nano", {.uses_moe = true, .min_prompt_tokens = 6144}};
const Model kLocalMoe = {"local MoE", {.uses_moe = true, .min_prompt_tokens = 6144}};

/// The case of the truth table: 32 tokens of text, C = 8,192, a head, an exact backend, request auto.
struct Case {
  AdmissionTraits traits;
  AdmissionProcess process = {.head_present = true, .backend_exact = true};
  AdmissionRequest request = {.num_prompt_tokens = 32, .context_limit = 8192};

  Admission admitted() const { return admit(traits, process, request); }
  /// "yes default", "no opt-in", ...
  std::string verdict() const {
    const Admission admission = admitted();
    return (admission.drafts ? "yes " : "no ") + std::string(name_of(admission.reason));
  }
};

std::string verdict(const Model& model, Speculation process) {
  Case row{model.traits};
  row.process.speculation = process;
  return row.verdict();
}

TEST(Admission, FollowsTheTruthTable) {
  struct Row {
    std::vector<Model> models;
    const char* unset;
    const char* on;
  };
  const std::vector<Row> table = {
      {{kDense27bQ4, kDemoDense}, "yes default", "yes explicit"},
      {{kDense27bBf16, kOrnith9b, kLocalDense}, "no opt-in", "yes explicit"},
      {{kOrnithQ4, kDemoMoe}, "yes default", "yes explicit"},
      {{kFlashNext}, "yes default", "yes explicit"},
      {{kNano, kLocalMoe}, "no prompt-below-threshold", "yes explicit"},
  };
  for (const Row& row : table) {
    for (const Model& model : row.models) {
      EXPECT_EQ(verdict(model, Speculation::kAuto), row.unset) << model.name;
      EXPECT_EQ(verdict(model, Speculation::kOff), "no disabled") << model.name;
      EXPECT_EQ(verdict(model, Speculation::kOn), row.on) << model.name;
    }
  }
}

TEST(Admission, ComparesThePromptWithTheThreshold) {
  Case row{kNano.traits};
  row.request.num_prompt_tokens = 6143;
  EXPECT_EQ(row.verdict(), "no prompt-below-threshold");
  row.request.num_prompt_tokens = 6144;
  EXPECT_EQ(row.verdict(), "yes default");
}

TEST(Admission, ComparesTheContextWithTheThreshold) {
  Case row{kNano.traits};
  row.process.speculation = Speculation::kOn;
  row.request.context_limit = 6143;
  EXPECT_EQ(row.verdict(), "no context-below-threshold");
  row.request.context_limit = 6144;
  EXPECT_EQ(row.verdict(), "yes explicit");
  row.request.context_limit = std::nullopt;
  EXPECT_EQ(row.verdict(), "yes explicit");
}

TEST(Admission, TakesTheThresholdFromTheProcess) {
  Case row{kDense27bQ4.traits};
  row.process.min_prompt_tokens = 100;
  row.request.num_prompt_tokens = 99;
  EXPECT_EQ(row.verdict(), "no prompt-below-threshold");
  row.request.num_prompt_tokens = 100;
  EXPECT_EQ(row.verdict(), "yes default");
  row.process.min_prompt_tokens = 9000;
  EXPECT_EQ(row.verdict(), "no context-below-threshold");
  Case lowered{kNano.traits};
  lowered.process.min_prompt_tokens = 0;
  EXPECT_EQ(lowered.verdict(), "yes default");
}

TEST(Admission, OptInIsLiftedByAReceiptOrTheProcessAlone) {
  Case row{kDense27bBf16.traits};
  row.traits.is_qualified = true;
  EXPECT_EQ(row.verdict(), "yes default");
  row.traits.is_qualified = false;
  row.request.speculation = Speculation::kOn;
  EXPECT_EQ(row.verdict(), "no opt-in");
  row.process.speculation = Speculation::kOff;
  EXPECT_EQ(row.verdict(), "no disabled");
}

TEST(Admission, RequestMayAskOrDecline) {
  Case asks{kNano.traits};
  asks.request.speculation = Speculation::kOn;
  EXPECT_EQ(asks.verdict(), "yes explicit");
  Case declines{kDense27bQ4.traits};
  declines.process.speculation = Speculation::kOn;
  declines.request.speculation = Speculation::kOff;
  EXPECT_EQ(declines.verdict(), "no disabled-by-request");
}

TEST(Admission, NeedsAHead) {
  Case row{kOrnithQ4.traits};
  row.process.head_present = false;
  EXPECT_EQ(row.verdict(), "no no-draft-head");
  row.process.speculation = Speculation::kOn;
  EXPECT_EQ(row.verdict(), "no no-draft-head");
}

TEST(Admission, RefusesInexactBackendsAndImages) {
  for (const Model& model : {kDense27bQ4, kDense27bBf16, kOrnithQ4, kFlashNext, kNano}) {
    Case row{model.traits};
    row.process.speculation = Speculation::kOn;
    row.request.has_image = true;
    EXPECT_EQ(row.verdict(), "no vision-input") << model.name;
    row.process.backend_exact = false;
    EXPECT_EQ(row.verdict(), "no backend-not-exact") << model.name;
    row.process.head_present = false;
    EXPECT_EQ(row.verdict(), "no no-draft-head") << model.name;
  }
}

TEST(Admission, DefaultQ4HasHistory) {
  // A default Q4 model once decoded with drafts and an empty history.
  const Admission admission = Case{kDense27bQ4.traits}.admitted();
  EXPECT_TRUE(admission.drafts);
  EXPECT_EQ(admission.history, HistoryMode::kStreaming);
}

TEST(Admission, EveryDraftingRequestHasItsHistoryUnlessAskedOtherwise) {
  // Over the whole input space: drafts imply history with the variable unset, and the verdict never depends
  // on the variable.
  for (int bits = 0; bits < 1 << 10; ++bits) {
    Case row;
    row.traits.default_on = (bits & 1) != 0;
    row.traits.uses_moe = (bits & 2) != 0;
    row.traits.is_flash_next = (bits & 4) != 0;
    row.process.head_present = (bits & 8) != 0;
    row.process.backend_exact = (bits & 16) != 0;
    row.request.has_image = (bits & 32) != 0;
    row.process.speculation = static_cast<Speculation>((bits >> 6 & 3) % 3);
    row.request.speculation = static_cast<Speculation>((bits >> 8 & 3) % 3);
    const Admission unset = row.admitted();
    if (unset.drafts) {
      EXPECT_EQ(unset.history, HistoryMode::kStreaming) << bits;
    }
    EXPECT_EQ(unset.drafts, unset.width > 1);
    for (const StreamHistory setting : {StreamHistory::kOff, StreamHistory::kNone}) {
      row.process.stream_history = setting;
      EXPECT_EQ(row.admitted().drafts, unset.drafts);
      EXPECT_EQ(row.admitted().reason, unset.reason);
    }
  }
}

TEST(Admission, PreparesHistoryForLaterRequestsWhenThisOneDeclines) {
  Case declines{kDense27bQ4.traits};
  declines.request.speculation = Speculation::kOff;
  EXPECT_FALSE(declines.admitted().drafts);
  EXPECT_EQ(declines.admitted().history, HistoryMode::kStreaming);
  Case is_short{kNano.traits};
  EXPECT_FALSE(is_short.admitted().drafts);
  EXPECT_EQ(is_short.admitted().history, HistoryMode::kStreaming);
  // Without a head there is nothing to prepare with, whatever rule came first.
  declines.process.head_present = false;
  EXPECT_EQ(declines.admitted().reason, AdmissionReason::kDisabledByRequest);
  EXPECT_EQ(declines.admitted().history, HistoryMode::kNone);
  is_short.request.has_image = true;
  EXPECT_EQ(is_short.admitted().reason, AdmissionReason::kPromptBelowThreshold);
  EXPECT_EQ(is_short.admitted().history, HistoryMode::kNone);
}

TEST(Admission, WidthComesFromRequestThenProcessThenTraits) {
  Case row{kDense27bQ4.traits};
  EXPECT_EQ(row.admitted().width, 8);
  EXPECT_EQ(row.admitted().width_requested, std::nullopt);
  row.process.width = 5;
  EXPECT_EQ(row.admitted().width, 5);
  row.request.width = 16;
  EXPECT_EQ(row.admitted().width, 9);
  EXPECT_EQ(row.admitted().width_requested, 16);
  EXPECT_EQ(Case{kOrnithQ4.traits}.admitted().width, 4);
  row.process.speculation = Speculation::kOff;
  EXPECT_EQ(row.admitted().width, 1);
}

TEST(Admission, HeadIsLoadedUnlessNoRequestCouldUseIt) {
  EXPECT_TRUE(needs_draft_head(kDense27bQ4.traits, Speculation::kAuto));
  EXPECT_FALSE(needs_draft_head(kDense27bQ4.traits, Speculation::kOff));
  EXPECT_FALSE(needs_draft_head(kDense27bBf16.traits, Speculation::kAuto));
  EXPECT_TRUE(needs_draft_head(kDense27bBf16.traits, Speculation::kOn));
  EXPECT_TRUE(needs_draft_head(kNano.traits, Speculation::kAuto));
}

TEST(Speculation, UnderstandsTheSpellingsOfTheVariable) {
  for (const char* text : {" TRUE ", "On", "1", "yes", "\tYES\n"}) {
    EXPECT_EQ(parse_speculation(text), Speculation::kOn) << text;
  }
  for (const char* text : {"NO", "Off", "0", "false", " no "}) {
    EXPECT_EQ(parse_speculation(text), Speculation::kOff) << text;
  }
  EXPECT_EQ(parse_speculation(""), Speculation::kAuto);
  EXPECT_EQ(parse_speculation("  "), Speculation::kAuto);
  for (const char* text : {"2", "auto", "onn", "o n", "-1"})
    EXPECT_EQ(parse_speculation(text), std::nullopt) << text;
}

TEST(HistoryMode, FollowsTheTable) {
  const HistoryCase dense = {.is_dense = true, .num_prompt_tokens = 100};
  HistoryCase request = dense;
  EXPECT_EQ(choose_history_mode(request), HistoryMode::kStreaming);
  request.stream_history = StreamHistory::kNone;
  EXPECT_EQ(choose_history_mode(request), HistoryMode::kNone);
  request.stream_history = StreamHistory::kOff;
  EXPECT_EQ(choose_history_mode(request), HistoryMode::kRetained);
  request.is_dense = false;
  EXPECT_EQ(choose_history_mode(request), HistoryMode::kNone);
  for (const StreamHistory setting : {StreamHistory::kOn, StreamHistory::kOff, StreamHistory::kNone}) {
    request = dense;
    request.stream_history = setting;
    request.is_flash_next = true;
    EXPECT_EQ(choose_history_mode(request), HistoryMode::kStreaming);
    request.is_excluded = true;
    EXPECT_EQ(choose_history_mode(request), HistoryMode::kNone);
  }
}

TEST(HistoryMode, RetainsUpTo4096Tokens) {
  HistoryCase request = {.is_dense = true, .stream_history = StreamHistory::kOff, .num_prompt_tokens = 4096};
  EXPECT_EQ(choose_history_mode(request), HistoryMode::kRetained);
  request.num_prompt_tokens = 4097;
  EXPECT_EQ(choose_history_mode(request), HistoryMode::kNone);
}

TEST(HistoryMode, ReadsTheVariable) {
  for (const char* text : {"0", "false", "off", " OFF "})
    EXPECT_EQ(parse_stream_history(text), StreamHistory::kOff);
  for (const char* text : {"none", "None"}) EXPECT_EQ(parse_stream_history(text), StreamHistory::kNone);
  for (const char* text : {"", "1", "true", "no", "2", "x"})
    EXPECT_EQ(parse_stream_history(text), StreamHistory::kOn);
}

TEST(Route, NamesAreTheReported) {
  EXPECT_EQ(name_of(Route::kMtpSpeculative), "mtp-speculative");
  EXPECT_EQ(name_of(Route::kContinuousBatched), "continuous-batched");
  EXPECT_EQ(name_of(Route::kFinalTargetPipelined), "final-target-pipelined");
  EXPECT_EQ(name_of(Route::kSerial), "serial");
}

}  // namespace
}  // namespace mererun
