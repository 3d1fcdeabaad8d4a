#include <fmt/format.h>

#include <random>

#include "decode/generation.h"
#include "decode/mtp_drafter.h"
#include "decode/prefill.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda_device.h"
#include "tests/cuda/checks.h"

namespace mererun::cuda_check {

namespace {

constexpr int kPromptTokens = 48, kTokens = 96, kWidth = 8, kRepetitions = 100;

class BudgetSink final : public ChoiceSink {
 public:
  ChoiceOutcome on_choice(const TargetChoice&) override {
    --left_;
    return {.is_emitted = true, .finish = left_ == 0 ? std::optional(FinishReason::kLength) : std::nullopt};
  }

 private:
  int left_ = kTokens;
};

struct Generated {
  std::vector<TokenId> ids;
  std::int64_t rounds = 0, accepted = 0;
};

class Generator {
 public:
  Generator(std::unique_ptr<Ops> ops, const std::filesystem::path& folder)
      : model_(Model::load(folder, {}, std::move(ops), {.max_rows = 64, .max_logit_rows = 32})),
        log_(model_->new_verify_log(kWidth)) {
    std::mt19937 engine(11);
    for (int i = 0; i < kPromptTokens; ++i)
      prompt_.push_back(static_cast<TokenId>(engine() % static_cast<unsigned>(model_->config().vocabulary)));
  }
  bool drafts() const { return model_->head() != nullptr; }
  /// Graphs that this generator's backend has launched; 0 without a queue.
  std::uint64_t replays() const {
    const auto* ops = dynamic_cast<const cuda::CudaOps*>(&model_->ops());
    return ops == nullptr || ops->queue() == nullptr ? 0 : ops->queue()->replays();
  }

  Generated run(bool with_drafts) {
    SequenceState state = model_->new_sequence();
    PrefillOptions options;
    options.chunk = 64;
    options.history = with_drafts ? HistoryMode::kStreaming : HistoryMode::kNone;
    Prefill(*model_, state, prompt_, options).run();
    SamplingOptions greedy;
    greedy.temperature = 0;
    Sampler sampler(greedy, prompt_);
    BudgetSink sink;
    GenerationParts parts{.model = *model_, .state = state, .sampler = sampler, .sink = sink};
    DepthPolicy policy({.max_depth = kWidth - 1, .cost = FullDepth{}});
    std::optional<MtpDrafter> drafter;
    if (with_drafts) {
      drafter.emplace(*model_);
      parts.log = &log_;
      parts.drafter = &*drafter;
      parts.policy = &policy;
    }
    Generation generation(parts, {.max_tokens = kTokens, .context_limit = 4096});
    generation.begin();
    generation.run();
    return {generation.tokens(), generation.statistics().rounds(), generation.statistics().accepted()};
  }

 private:
  std::unique_ptr<Model> model_;
  VerifyLog log_;
  std::vector<TokenId> prompt_;
};

}  // namespace

void check_generation(Report& report, const std::string& name, const std::filesystem::path& folder) {
  Generator cpu(make_cpu_ops({}), folder);
  Generator gpu(make_cuda_ops({}, CudaGraphs::kOn), folder);
  Generator plain(make_cuda_ops({}, CudaGraphs::kOff), folder);
  const Generated serial = cpu.run(false);
  const Generated drafted = gpu.run(true);
  const bool equals_cpu = cpu.run(true).ids == serial.ids && drafted.ids == serial.ids;
  const bool serial_equals = gpu.run(false).ids == serial.ids;
  const bool plain_equals = plain.run(true).ids == serial.ids;
  int same = 0;
  for (int i = 0; i < kRepetitions; ++i) same += gpu.run(true).ids == serial.ids ? 1 : 0;
  const bool pass = cpu.drafts() && drafted.rounds > 0 && gpu.replays() > 0 && plain.replays() == 0 &&
                    equals_cpu && serial_equals && plain_equals && same == kRepetitions;
  report.add(
      {fmt::format(R"({{"check":"generation","model":"{}","tokens":{},"rounds":{},"acceptedDrafts":{},)"
                   R"("draftedEqualsCpu":{},"serialEqualsCpu":{},"withoutGraphsEqualsCpu":{},)"
                   R"("graphReplays":{},"repetitions":{},"sameIds":{},"pass":{}}})",
                   name, kTokens, drafted.rounds, drafted.accepted, equals_cpu, serial_equals, plain_equals,
                   gpu.replays(), kRepetitions, same, pass),
       pass});
}

}  // namespace mererun::cuda_check
