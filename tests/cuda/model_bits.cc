#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "kernels/cuda_device.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "tests/cuda/checks.h"

namespace mererun::cuda_check {

namespace {

struct Trace {
  std::vector<std::string> names;
  std::vector<std::uint64_t> hashes;

  void add(std::string name, std::uint64_t hash) {
    names.push_back(std::move(name));
    hashes.push_back(hash);
  }
};

/// Runs one model through everything whose bits the contract fixes.
class Walk {
 public:
  Walk(std::unique_ptr<Ops> ops, const std::filesystem::path& folder, int prompt_tokens, int decode_tokens)
      : model_(Model::load(folder, {}, std::move(ops), {.max_rows = 128, .max_logit_rows = 32})),
        decode_tokens_(decode_tokens) {
    std::mt19937 engine(7);
    for (int i = 0; i < prompt_tokens; ++i) prompt_.push_back(token(engine));
    for (int i = 0; i < 64; ++i) guesses_.push_back(token(engine));
  }

  Trace run() {
    SequenceState state = model_->new_sequence();
    for (std::size_t at = 0; at < prompt_.size();) {
      const std::size_t count = std::min<std::size_t>(100, prompt_.size() - at);
      hidden_ = forward(state, {prompt_.data() + at, count}, nullptr);
      at += count;
    }
    trace_.add("prefill", hash_floats(logits_of(hidden_.row_range(hidden_.rows - 1, 1))));
    draft(state);
    for (int width = 1; width <= 32; ++width) {
      if (width <= 9 || width == 16 || width == 32) verify(state, width);
    }
    decode(state);
    return std::move(trace_);
  }

 private:
  TokenId token(std::mt19937& engine) const {
    return static_cast<TokenId>(engine() % static_cast<unsigned>(model_->config().vocabulary));
  }
  TensorView forward(SequenceState& state, std::span<const TokenId> ids, VerifyTransaction* transaction) {
    const PassSegment segment{&state, transaction, 0, static_cast<int>(ids.size())};
    return model_->decoder().forward(ids, {&segment, 1});
  }
  std::vector<float> logits_of(const TensorView& hidden) {
    const TensorView view = model_->decoder().logits(hidden);
    std::vector<float> values(static_cast<std::size_t>(view.rows) * static_cast<std::size_t>(view.cols));
    model_->ops().download(values.data(), view.data, values.size() * sizeof(float));
    return values;
  }

  /// The draft head over the last rows of the prompt.
  void draft(const SequenceState& state) {
    if (model_->head() == nullptr) return;
    KvCache cache(model_->pools().head);
    const TensorView last = state.last_hidden();
    const TensorView out = model_->head()->forward(last, {prompt_.data(), 1}, 0, 3, cache);
    const TensorView view = model_->head()->draft_logits(out);
    std::vector<float> values(static_cast<std::size_t>(view.cols));
    model_->ops().download(values.data(), view.data, values.size() * sizeof(float));
    trace_.add("draft head", hash_floats(values));
    cache.set_length(1);
    trace_.add("draft token", static_cast<std::uint64_t>(model_->head()->argmax_tokens(view)[0]));
  }

  void verify(const SequenceState& base, int width) {
    VerifyLog log = model_->new_verify_log(width);
    const std::span<const TokenId> ids(guesses_.data(), static_cast<std::size_t>(width));
    const bool every = width == 4 || width >= 8;
    for (int accepted = every ? 0 : width; accepted <= width; ++accepted) {
      SequenceState state = base.fork();
      std::uint64_t rows = 0;
      {
        VerifyTransaction transaction(state, log, width);
        const TensorView hidden = forward(state, ids, &transaction);
        rows = hash_floats(logits_of(hidden));
        transaction.commit(accepted, hidden);
      }
      if (accepted == width) trace_.add(fmt::format("verify {}", width), rows);
      const TokenId next = guesses_[63];
      const TensorView hidden = forward(state, {&next, 1}, nullptr);
      trace_.add(fmt::format("verify {} accept {}", width, accepted), hash_floats(logits_of(hidden)));
    }
  }

  void decode(SequenceState& state) {
    TokenId next = guesses_[0];
    for (int i = 0; i < decode_tokens_; ++i) {
      const std::vector<float> logits = logits_of(forward(state, {&next, 1}, nullptr));
      trace_.add(fmt::format("decode {}", i), hash_floats(logits));
      next = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
  }

  std::unique_ptr<Model> model_;
  int decode_tokens_;
  std::vector<TokenId> prompt_, guesses_;
  TensorView hidden_;
  Trace trace_;
};

}  // namespace

void check_model_bits(Report& report, const std::string& name, const std::filesystem::path& folder,
                      int prompt_tokens, int decode_tokens) {
  const Trace cpu = Walk(make_cpu_ops({}), folder, prompt_tokens, decode_tokens).run();
  const Trace gpu = Walk(make_cuda_ops({}, CudaGraphs::kOn), folder, prompt_tokens, decode_tokens).run();
  const Trace plain = Walk(make_cuda_ops({}, CudaGraphs::kOff), folder, prompt_tokens, decode_tokens).run();
  int differing = 0;
  std::string first = "";
  std::uint64_t all = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < cpu.hashes.size(); ++i) {
    all = (all ^ cpu.hashes[i]) * 0x100000001b3u;
    if (cpu.hashes[i] == gpu.hashes[i]) continue;
    if (differing++ == 0) first = cpu.names[i];
  }
  const bool same = gpu.hashes == plain.hashes;
  const bool pass = differing == 0 && same;
  report.add(
      {fmt::format(
           R"({{"check":"model bits","model":"{}","promptTokens":{},"decodeTokens":{},"hashes":{},)"
           R"("differing":{},"firstDifference":"{}","graphsEqualPlain":{},"hash":"{:016x}","pass":{}}})",
           name, prompt_tokens, decode_tokens, cpu.hashes.size(), differing, first, same, all, pass),
       pass});
}

}  // namespace mererun::cuda_check
