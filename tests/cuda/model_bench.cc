#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>

#include "kernels/cuda_device.h"
#include "model/model.h"
#include "model/synthetic_weights.h"
#include "tests/cuda/checks.h"

namespace mererun::cuda_check {

namespace {

constexpr int kChunk = 1024, kDraftSteps = 8;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class ModelBench {
 public:
  ModelBench(Report& report, std::string size)
      : report_(report),
        size_(std::move(size)),
        geometry_(make_synthetic_geometry(size_ == "27b" ? "q38-27b" : "ornith-35b", std::nullopt)),
        weights_(make_synthetic_weights(geometry_.config, 1)) {
    const auto start = std::chrono::steady_clock::now();
    model_ = std::make_unique<Model>(make_cuda_ops({}), std::move(weights_.host),
                                     ModelLimits{.max_rows = kChunk, .max_logit_rows = 32});
    model_->ops().synchronize();
    report_.add({fmt::format(R"({{"bench":"load","model":"{}","seconds":{:.1f},"weightBytes":{}}})", size_,
                             seconds_since(start), model_->weights().owned_bytes),
                 true});
    std::mt19937 engine(5);
    const auto vocabulary = static_cast<unsigned>(geometry_.config.vocabulary);
    for (int i = 0; i < 65536; ++i) ids_.push_back(static_cast<TokenId>(engine() % vocabulary));
  }

  /// A state behind `context` evaluated positions.
  SequenceState prefill(int context) {
    SequenceState state = model_->new_sequence();
    const auto start = std::chrono::steady_clock::now();
    for (int at = 0; at < context; at += kChunk) pass(state, at, std::min(kChunk, context - at), nullptr);
    model_->ops().synchronize();
    const double seconds = seconds_since(start);
    report_.add(
        {fmt::format(R"({{"bench":"prefill","model":"{}","tokens":{},"seconds":{:.4f},"tokensPerS":{:.0f}}})",
                     size_, context, seconds, context / seconds),
         true});
    return state;
  }

  /// A state of `context` positions of which `evaluated` were computed; the pages of the others are copies of
  /// theirs, each in its own place. Times are those of a real context; what the rows say is not.
  SequenceState stretched(int evaluated, int context) {
    SequenceState state = prefill(evaluated);
    state.kv().reserve(context - evaluated);
    state.kv().set_length(context);
    const std::vector<KvPageRef> pages = state.kv().share_pages();
    const auto real = static_cast<std::size_t>(evaluated / kKvPagePositions);
    for (std::size_t i = real; i < pages.size(); ++i)
      model_->ops().copy(pages[i]->bytes.data(), pages[i % real]->bytes.data(), pages[i]->bytes.size_bytes());
    model_->ops().synchronize();
    return state;
  }

  /// Oracle-fed rounds of one width: forward, logits, argmax on the device, one download, commit of all rows.
  void verify(const SequenceState& base, int width) {
    SequenceState state = base.fork();
    VerifyLog log = model_->new_verify_log(width);
    const Buffer chosen = model_->ops().allocate(32 * sizeof(std::int32_t));
    std::vector<std::int32_t> host(static_cast<std::size_t>(width));
    constexpr int kWarmUp = 6, kRounds = 16;
    std::vector<double> times, queued;
    for (int i = 0; i < kWarmUp + kRounds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      VerifyTransaction transaction(state, log, width);
      const TensorView hidden = pass(state, 2048 + i * width, width, &transaction);
      const TensorView logits = model_->decoder().logits(hidden);
      model_->ops().argmax_rows({.logits = logits, .ids = make_view(chosen.data(), DType::kI32, 1, width)});
      transaction.commit(width, hidden);
      const double queue = seconds_since(start);
      model_->ops().download(host.data(), chosen.data(), host.size() * sizeof(std::int32_t));
      if (i < kWarmUp) continue;
      times.push_back(seconds_since(start));
      queued.push_back(queue);
    }
    const double seconds = median(times);
    if (width == 1) serial_seconds_ = seconds;
    std::string experts;
    if (geometry_.config.is_moe())
      experts = fmt::format(R"("expertsPerLayer":{:.1f},)", distinct_experts(state, width));
    report_.add({fmt::format(R"({{"bench":"verify","model":"{}","context":{},"width":{},"msPerRound":{:.3f},)"
                             R"("msFastest":{:.3f},"msQueued":{:.3f},{}"tokensPerS":{:.1f},"first":{}}})",
                             size_, base.length(), width, seconds * 1e3,
                             *std::min_element(times.begin(), times.end()) * 1e3, median(queued) * 1e3,
                             experts, width / seconds, host[0]),
                 true});
  }

  /// Chained draft steps: as a drafter makes them (each token comes to the host), and left on the device.
  void draft(const SequenceState& state) {
    if (model_->head() == nullptr) return;
    MtpHead& head = *model_->head();
    std::vector<double> with_tokens, on_device;
    for (int i = 0; i < 12; ++i) {
      for (const bool downloads : {true, false}) {
        KvCache cache(model_->pools().head);
        TokenId id = 1;
        const auto start = std::chrono::steady_clock::now();
        TensorView out = state.last_hidden();
        for (int step = 0; step < kDraftSteps; ++step) {
          out = head.forward(out, {&id, 1}, step, 0, cache);
          if (downloads) {
            id = head.argmax_tokens(head.draft_logits(out))[0];
          } else {
            head.draft_logits(out);
          }
        }
        model_->ops().synchronize();
        if (i >= 4) (downloads ? with_tokens : on_device).push_back(seconds_since(start) / kDraftSteps);
      }
    }
    report_.add(
        {fmt::format(R"({{"bench":"draft step","model":"{}","msWithToken":{:.4f},"msOnDevice":{:.4f},)"
                     R"("draftRows":{},"ratioToSerial":{:.4f}}})",
                     size_, median(with_tokens) * 1e3, median(on_device) * 1e3, head.output().rows,
                     median(with_tokens) / serial_seconds_),
         true});
  }

 private:
  TensorView pass(SequenceState& state, int from, int count, VerifyTransaction* transaction) {
    const PassSegment segment{&state, transaction, 0, count};
    return model_->decoder().forward({ids_.data() + from, static_cast<std::size_t>(count)}, {&segment, 1});
  }

  /// Mean over the layers of how many experts the rows of one pass chose together.
  double distinct_experts(const SequenceState& base, int width) {
    SequenceState state = base.fork();
    VerifyLog log = model_->new_verify_log(width);
    std::size_t seen = 0;
    DecoderHooks hooks;
    hooks.routed = [&](int, TensorView ids, TensorView) {
      std::vector<std::int32_t> row(static_cast<std::size_t>(ids.cols));
      std::set<std::int32_t> experts;
      for (int t = 0; t < ids.rows; ++t) {
        model_->ops().download(row.data(), ids.row<std::int32_t>(t), row.size() * sizeof(std::int32_t));
        experts.insert(row.begin(), row.end());
      }
      seen += experts.size();
    };
    model_->decoder().set_hooks(&hooks);
    VerifyTransaction transaction(state, log, width);
    pass(state, 2048, width, &transaction);
    model_->ops().synchronize();
    model_->decoder().set_hooks(nullptr);
    return static_cast<double>(seen) / geometry_.config.layers;
  }

  Report& report_;
  std::string size_;
  SyntheticGeometry geometry_;
  SyntheticWeights weights_;  // its memory outlives the model
  std::unique_ptr<Model> model_;
  std::vector<TokenId> ids_;
  double serial_seconds_ = 0;
};

}  // namespace

void bench_model(Report& report, const std::string& size) {
  ModelBench bench(report, size);
  {
    const SequenceState state = bench.prefill(512);
    for (const int width : {1, 4, 8, 9, 16, 2, 32}) bench.verify(state, width);
    bench.draft(state);
  }
  const SequenceState state = bench.prefill(8192);
  for (const int width : {1, 8}) bench.verify(state, width);
}

void bench_long_context(Report& report, const std::string& size) {
  ModelBench bench(report, size);
  const SequenceState state = bench.stretched(kChunk, 65536 - 512);
  for (const int width : {1, 8}) bench.verify(state, width);
}

}  // namespace mererun::cuda_check
