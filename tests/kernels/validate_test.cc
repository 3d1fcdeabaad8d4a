#include "kernels/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "base/error.h"
#include "kernels/validate_views.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/kv_pages.h"
#include "tests/kernels/weights.h"

namespace mererun {
namespace {

using testing::HasSubstr;

/// Message of the kInvalidArgument the call must throw.
std::string refusal(const std::function<void()>& call, ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing thrown";
  return "";
}

/// The params after a change must be refused with a message that holds `place`, and pass without it.
template <typename Params>
void expect_refused(Params params, const std::function<void(Params&)>& change, const std::string& place) {
  EXPECT_NO_THROW(validate(params));
  change(params);
  EXPECT_THAT(refusal([&] { validate(params); }), HasSubstr(place));
}

class ValidateTest : public testing::Test {
 protected:
  TensorView f32(int rows, int cols) {
    storage_.push_back(allocate_host(static_cast<std::size_t>(rows * cols) * 4 + 64));
    return make_view(storage_.back().data(), DType::kF32, rows, cols);
  }
  TensorView i32(int rows, int cols) {
    TensorView view = f32(rows, cols);
    view.dtype = DType::kI32;
    return view;
  }
  LinearHandle weight(int experts, int out, int in) {
    weights_.push_back(TestWeight::affine(numbers_, experts, out, in, 4, 32));
    return ops_->prepare_linear(weights_.back().source());
  }

  std::unique_ptr<Ops> ops_ = make_reference_ops();
  Numbers numbers_{1};
  std::deque<TestWeight> weights_;
  std::vector<Buffer> storage_;
};

TEST_F(ValidateTest, RmsNorm) {
  const RmsNormParams good{f32(3, 8), f32(1, 8), 1e-6f, f32(3, 8)};
  expect_refused<RmsNormParams>(
      good, [&](auto& p) { p.weight = f32(1, 7); }, "rms_norm weight: expected [1, 8] F32, got [1, 7] F32");
  expect_refused<RmsNormParams>(
      good, [&](auto& p) { p.out = f32(2, 8); }, "rms_norm out");
  expect_refused<RmsNormParams>(
      good, [&](auto& p) { p.x.dtype = DType::kBF16; }, "rms_norm x");
  expect_refused<RmsNormParams>(
      good, [&](auto& p) { p.x.data = nullptr; }, "rms_norm x: expected memory");
  expect_refused<RmsNormParams>(
      good, [&](auto& p) { p.x.row_stride = 7; }, "rms_norm x: expected a row stride");
  expect_refused<RmsNormParams>(
      good, [&](auto& p) { p.x.data = static_cast<char*>(p.x.data) + 2; }, "an address divisible by 4");
  expect_refused<RmsNormParams>(
      good, [&](RmsNormParams& p) { p.out.data = p.x.row<float>(1); }, "rms_norm out and x");
  RmsNormParams in_place = good;
  in_place.out = in_place.x;
  EXPECT_NO_THROW(validate(in_place));
}

TEST_F(ValidateTest, EmptyPassesAreLegal) {
  const RmsNormParams none{f32(0, 8), f32(1, 8), 1e-6f, f32(0, 8)};
  EXPECT_NO_THROW(ops_->rms_norm(none));
  const AdvanceWindowParams still{f32(3, 8), make_view(nullptr, DType::kF32, 0, 8)};
  EXPECT_NO_THROW(ops_->advance_window(still));
}

TEST_F(ValidateTest, GatedRmsNorm) {
  const GatedRmsNormParams good{f32(2, 8), f32(2, 8), f32(1, 4), 2, 1e-6f, GateActivation::kSilu, f32(2, 8)};
  expect_refused<GatedRmsNormParams>(
      good, [](auto& p) { p.heads = 3; }, "gated_rms_norm x");
  expect_refused<GatedRmsNormParams>(
      good, [](auto& p) { p.heads = 0; }, "gated_rms_norm heads");
  expect_refused<GatedRmsNormParams>(
      good, [](auto& p) { p.out = p.z; }, "gated_rms_norm out and z");
}

TEST_F(ValidateTest, ElementWise) {
  const SwigluParams swiglu{f32(2, 8), f32(2, 8), f32(2, 8)};
  expect_refused<SwigluParams>(
      swiglu, [&](auto& p) { p.up = f32(2, 9); }, "swiglu up");
  expect_refused<SwigluParams>(
      swiglu, [](SwigluParams& p) { p.out.data = p.gate.row<float>(0) + 1; }, "swiglu out and gate");
  const AddRowsParams add{f32(2, 8), f32(2, 8), f32(2, 8)};
  expect_refused<AddRowsParams>(
      add, [&](auto& p) { p.a = f32(1, 8); }, "add_rows a");
  const ArgmaxRowsParams argmax{f32(2, 8), i32(1, 2)};
  expect_refused<ArgmaxRowsParams>(
      argmax, [&](auto& p) { p.ids = i32(1, 3); }, "argmax_rows ids");
  expect_refused<ArgmaxRowsParams>(
      argmax, [](auto& p) { p.logits.cols = 0; }, "argmax_rows logits");
}

TEST_F(ValidateTest, Linear) {
  const LinearHandle w = weight(1, 6, 64), stack = weight(2, 6, 64);
  std::vector<LinearParams::Target> targets = {{w.get(), f32(3, 6), {}}};
  const LinearParams good{f32(3, 64), targets};
  expect_refused<LinearParams>(
      good, [&](auto&) { targets[0].weight = nullptr; }, "linear weight: expected a weight");
  targets[0].weight = w.get();
  expect_refused<LinearParams>(
      good, [&](auto&) { targets[0].weight = stack.get(); }, "linear weight");
  targets[0].weight = w.get();
  expect_refused<LinearParams>(
      good, [&](auto& p) { p.x = f32(3, 32); }, "linear weight");
  expect_refused<LinearParams>(
      good, [&](auto& p) { p.x = f32(2, 64); }, "linear out");
  expect_refused<LinearParams>(
      good, [&](auto& p) { targets[0].out = p.x.col_range(0, 6); }, "linear out and x");
  targets[0].out = f32(3, 6);
  expect_refused<LinearParams>(
      good, [&](auto&) { targets[0].residual = f32(3, 5); }, "linear residual");
  targets[0].residual = targets[0].out;
  EXPECT_NO_THROW(validate(good));

  const TensorView wide = f32(3, 12);
  std::vector<LinearParams::Target> two = {{w.get(), wide.col_range(0, 6), {}},
                                           {w.get(), wide.col_range(6, 6), {}}};
  const LinearParams shared{f32(3, 64), two};
  expect_refused<LinearParams>(
      shared, [&](auto&) { two[1].out = wide.col_range(5, 6); }, "linear two outs");
}

TEST_F(ValidateTest, GatedLinear) {
  const LinearHandle g = weight(1, 6, 64), u = weight(1, 6, 64), other = weight(1, 5, 64);
  const GatedLinearParams good{f32(2, 64), g.get(), u.get(), f32(2, 6), f32(2, 6), f32(2, 6)};
  expect_refused<GatedLinearParams>(
      good, [&](auto& p) { p.up = other.get(); }, "gated_linear up rows");
  expect_refused<GatedLinearParams>(
      good, [&](auto& p) { p.up_scratch = p.gate_scratch; }, "gated_linear gate_scratch and up_scratch");
  expect_refused<GatedLinearParams>(
      good, [&](auto& p) { p.out = p.x.col_range(0, 6); }, "gated_linear out and x");
}

TEST_F(ValidateTest, EmbedRows) {
  const LinearHandle w = weight(1, 6, 64);
  EmbedRowsParams good{i32(1, 3), w.get(), f32(3, 64)};
  expect_refused<EmbedRowsParams>(
      good, [&](auto& p) { p.ids = i32(1, 2); }, "embed_rows ids");
  expect_refused<EmbedRowsParams>(
      good, [&](auto& p) { p.out = f32(3, 32); }, "embed_rows weight");
  for (std::int32_t bad : {-1, 6}) {
    good.ids.row<std::int32_t>(0)[1] = bad;
    EXPECT_THAT(refusal([&] { ops_->embed_rows(good); }),
                HasSubstr("embed_rows ids: expected an id below 6"));
  }
}

TEST_F(ValidateTest, AttentionPrepare) {
  KvPages pages(*ops_, 2, 2, 8);
  AttentionPrepareParams good{.q_gate = f32(3, 64),
                              .k = f32(3, 16),
                              .v = f32(3, 16),
                              .q_norm = f32(1, 8),
                              .k_norm = f32(1, 8),
                              .positions = i32(1, 3),
                              .rope = {f32(600, 2), f32(600, 2), 4},
                              .eps = 1e-6f,
                              .heads = 4,
                              .q = f32(3, 32),
                              .cache = pages.view()};
  using P = AttentionPrepareParams;
  expect_refused<P>(
      good, [](P& p) { p.heads = 3; }, "attention_prepare heads mod cache.kv_heads");
  expect_refused<P>(
      good, [&](P& p) { p.v = f32(3, 8); }, "attention_prepare v");
  expect_refused<P>(
      good, [](P& p) { p.rope.rotary_dims = 10; }, "attention_prepare head_dim");
  expect_refused<P>(
      good, [](P& p) { p.rope.rotary_dims = 3; }, "attention_prepare rope.rotary_dims mod 2");
  expect_refused<P>(
      good, [](P& p) { p.cache.key_scales += 2; }, "attention_prepare cache scales");
  expect_refused<P>(
      good, [](P& p) { p.q.data = p.q_gate.data; }, "attention_prepare q and q_gate");
  expect_refused<P>(
      good, [](P& p) { p.q = {}; }, "attention_prepare q and q_gate: expected both or neither");

  std::int32_t* at = good.positions.row<std::int32_t>(0);
  const auto refused_at = [&](std::int32_t a, std::int32_t b, std::int32_t c) {
    at[0] = a;
    at[1] = b;
    at[2] = c;
    return refusal([&] { ops_->attention_prepare(good); });
  };
  EXPECT_THAT(refused_at(-1, 0, 1),
              HasSubstr("attention_prepare positions: expected a position of at least 0"));
  EXPECT_THAT(refused_at(4, 6, 7), HasSubstr("consecutive positions: 5, got 6"));
  EXPECT_THAT(refused_at(510, 511, 512), HasSubstr("positions below 512 (the pages held), got 512"));
  good.rope.cos.rows = good.rope.sin.rows = 100;
  EXPECT_THAT(refused_at(98, 99, 100), HasSubstr("positions below 100 (the rope table)"));
}

TEST_F(ValidateTest, Attend) {
  KvPages pages(*ops_, 2, 2, 8);
  AttendParams attend{.q = f32(3, 32),
                      .q_gate = f32(3, 64),
                      .positions = i32(1, 3),
                      .cache = pages.view(),
                      .heads = 4,
                      .scale_log2e = 1,
                      .out = f32(3, 32)};
  expect_refused<AttendParams>(
      attend, [](AttendParams& p) { p.out = p.q; }, "attend out and q");
  expect_refused<AttendParams>(
      attend, [&](AttendParams& p) { p.positions = i32(1, 4); }, "attend positions");
  std::byte* table[2] = {pages.view().pages[0], nullptr};
  attend.cache.pages = table;
  for (int t = 0; t < 3; ++t) attend.positions.row<std::int32_t>(0)[t] = 255 + t;
  EXPECT_THAT(refusal([&] { ops_->attend(attend); }),
              HasSubstr("attend positions: expected a page in memory, got 1"));
}

TEST_F(ValidateTest, Delta) {
  const DeltaShape s{.key_heads = 1, .value_heads = 2, .key_dim = 16, .value_dim = 4, .conv_taps = 4};
  const DeltaPrepareParams prepare{.shape = s,
                                   .inputs = f32(3, 40),
                                   .window = f32(3, 40),
                                   .conv_weight = f32(4, 40),
                                   .a = f32(3, 2),
                                   .b = f32(3, 2),
                                   .a_log = f32(1, 2),
                                   .dt_bias = f32(1, 2),
                                   .q = f32(3, 16),
                                   .k = f32(3, 16),
                                   .v = f32(3, 8),
                                   .alpha = f32(3, 2),
                                   .beta = f32(3, 2)};
  using P = DeltaPrepareParams;
  expect_refused<P>(
      prepare, [](P& p) { p.shape.key_dim = 24; }, "delta_prepare shape.key_dim mod 16");
  expect_refused<P>(
      prepare, [](P& p) { p.shape.key_heads = 3; }, "delta_prepare shape.value_heads mod key_heads");
  expect_refused<P>(
      prepare, [&](P& p) { p.window = f32(2, 40); }, "delta_prepare window");
  expect_refused<P>(
      prepare, [](P& p) { p.v = p.inputs.col_range(32, 8); }, "delta_prepare outputs and inputs");

  const DeltaStepParams step{.shape = s,
                             .q = f32(3, 16),
                             .k = f32(3, 16),
                             .v = f32(3, 8),
                             .alpha = f32(3, 2),
                             .beta = f32(3, 2),
                             .state = f32(32, 4),
                             .write = StateWrite::kStore,
                             .u = {},
                             .out = f32(3, 8)};
  expect_refused<DeltaStepParams>(
      step, [&](auto& p) { p.state = f32(16, 4); }, "delta_step state");
  expect_refused<DeltaStepParams>(
      step, [&](auto& p) { p.u = f32(2, 8); }, "delta_step u");
  expect_refused<DeltaStepParams>(
      step, [](auto& p) { p.out = p.v; }, "delta_step outputs and v");

  const DeltaReplayParams replay{s, f32(2, 16), f32(2, 8), f32(2, 2), f32(32, 4)};
  expect_refused<DeltaReplayParams>(
      replay, [&](auto& p) { p.alpha = f32(1, 2); }, "delta_replay alpha");
  const AdvanceWindowParams advance{f32(3, 40), f32(5, 40)};
  expect_refused<AdvanceWindowParams>(
      advance, [](auto& p) { p.inputs.data = p.window.data; }, "advance_window window and inputs");
}

TEST_F(ValidateTest, Experts) {
  RouteExpertsParams routing{f32(2, 4), i32(2, 3), true, i32(2, 3), f32(2, 3)};
  for (int t = 0; t < 2; ++t) {
    for (int i = 0; i < 3; ++i) routing.forced_ids.row<std::int32_t>(t)[i] = i;
  }
  expect_refused<RouteExpertsParams>(
      routing, [&](auto& p) { p.weights = f32(2, 2); }, "route_experts weights");
  expect_refused<RouteExpertsParams>(
      routing, [&](auto& p) { p.logits = f32(2, 2); }, "route_experts logits");
  EXPECT_NO_THROW(ops_->route_experts(routing));
  routing.forced_ids.row<std::int32_t>(1)[2] = 1;
  EXPECT_THAT(refusal([&] { ops_->route_experts(routing); }),
              HasSubstr("route_experts forced_ids: expected ids above 1"));

  const LinearHandle g = weight(4, 32, 64), u = weight(4, 32, 64), d = weight(4, 64, 32),
                     other = weight(3, 64, 32), sg = weight(1, 96, 64), sd = weight(1, 64, 96);
  ExpertMlpParams mlp{.x = f32(2, 64),
                      .ids = i32(2, 2),
                      .weights = f32(2, 2),
                      .gate = g.get(),
                      .up = u.get(),
                      .down = d.get(),
                      .shared = {.gate = sg.get(),
                                 .up = sg.get(),
                                 .down = sd.get(),
                                 .logits = f32(2, 1),
                                 .gate_scratch = f32(2, 96),
                                 .up_scratch = f32(2, 96),
                                 .out_scratch = f32(2, 64)},
                      .residual = f32(2, 64),
                      .out = f32(2, 64)};
  expect_refused<ExpertMlpParams>(
      mlp, [&](auto& p) { p.down = other.get(); }, "expert_mlp down experts");
  expect_refused<ExpertMlpParams>(
      mlp, [](auto& p) { p.shared.up = nullptr; }, "expert_mlp shared weights");
  expect_refused<ExpertMlpParams>(
      mlp, [&](auto& p) { p.shared.down = d.get(); }, "expert_mlp shared down input");
  expect_refused<ExpertMlpParams>(
      mlp, [](auto& p) { p.shared.logits = {}; }, "expert_mlp shared logits");
  expect_refused<ExpertMlpParams>(
      mlp, [](auto& p) { p.shared.out_scratch = p.out; }, "expert_mlp shared out_scratch and out");
  expect_refused<ExpertMlpParams>(
      mlp, [](auto& p) { p.out = p.x; }, "expert_mlp out and x");
  mlp.ids.row<std::int32_t>(0)[0] = 0;
  mlp.ids.row<std::int32_t>(0)[1] = 4;
  EXPECT_THAT(refusal([&] { ops_->expert_mlp(mlp); }),
              HasSubstr("expert_mlp ids: expected an id below 4, got 4"));
}

TEST_F(ValidateTest, Sources) {
  const TestWeight w = TestWeight::affine(numbers_, 1, 2, 64, 4, 32);
  const auto refused = [&](const std::function<void(LinearSource&)>& change, ErrorCode code) {
    LinearSource s = w.source();
    change(s);
    return refusal([&] { ops_->prepare_linear(s); }, code);
  };
  EXPECT_THAT(refused([](auto& s) { s.bits = 7; }, ErrorCode::kUnsupported),
              HasSubstr("test: expected 2, 3, 4, 5, 6 or 8 bits, got 7"));
  EXPECT_THAT(refused([](auto& s) { s.group = 16; }, ErrorCode::kUnsupported),
              HasSubstr("groups of 32, 64 or 128"));
  EXPECT_THAT(refused([](auto& s) { s.in = 80; }, ErrorCode::kUnsupported),
              HasSubstr("a width divisible by 32"));
  EXPECT_THAT(refused([](auto& s) { s.dtype = DType::kU8; }, ErrorCode::kUnsupported),
              HasSubstr("BF16, F16 or F32"));
  EXPECT_THAT(refused([](auto& s) { s.biases = nullptr; }, ErrorCode::kInvalidArgument),
              HasSubstr("scales and biases"));
  EXPECT_THAT(refused([](auto& s) { s.out = 0; }, ErrorCode::kInvalidArgument),
              HasSubstr("sizes of at least 1"));
  EXPECT_THAT(refused([](auto& s) { s.expert_stride = 1; }, ErrorCode::kInvalidArgument),
              HasSubstr("at least 2 rows apart"));
}

TEST_F(ValidateTest, EmbeddingsAreNotLinears) {
  const TestWeight w = TestWeight::affine(numbers_, 1, 2, 64, 4, 32);
  const LinearHandle embedding = ops_->prepare_embedding(w.source());
  EXPECT_EQ(embedding->owned_bytes(), 0u);
  const LinearParams::Target target{embedding.get(), f32(1, 2), {}};
  EXPECT_THAT(refusal([&] {
                ops_->linear({f32(1, 64), {&target, 1}});
              }),
              HasSubstr("a weight of prepare_linear"));
}

TEST(ViewsOverlap, KnowsColumnRanges) {
  std::vector<float> data(64);
  const TensorView all = make_view(data.data(), DType::kF32, 4, 16);
  EXPECT_TRUE(views_overlap(all, all.row_range(1, 2)));
  EXPECT_FALSE(views_overlap(all.row_range(0, 2), all.row_range(2, 2)));
  EXPECT_FALSE(views_overlap(all.col_range(0, 8), all.col_range(8, 8)));
  EXPECT_FALSE(views_overlap(all.col_range(8, 8), all.col_range(0, 8)));
  EXPECT_TRUE(views_overlap(all.col_range(0, 9), all.col_range(8, 8)));
  EXPECT_TRUE(views_overlap(all.col_range(8, 8), all.col_range(0, 9)));
  EXPECT_FALSE(views_overlap(all.col_range(4, 4), all.row_range(2, 1).col_range(8, 8)));
  EXPECT_TRUE(views_overlap(all.col_range(4, 4), make_view(data.data() + 20, DType::kF32, 1, 1)));
  EXPECT_FALSE(views_overlap(all, TensorView{}));
}

}  // namespace
}  // namespace mererun
