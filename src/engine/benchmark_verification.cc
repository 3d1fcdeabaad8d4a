#include "engine/benchmark_verification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/sha256.h"
#include "decode/prefill.h"
#include "engine/memory_usage.h"

namespace mererun {
namespace {

/// SHA-256 of a row with NaN and -0 in one spelling each; changes the row to that spelling.
std::string hash_row(std::span<float> row) {
  for (float& value : row) {
    if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
    if (value == 0.0F) value = 0.0F;
  }
  return sha256_hex(std::as_bytes(row));
}

/// Largest value, lowest id on ties; -1 for a row with a NaN.
TokenId argmax(std::span<const float> row) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (std::isnan(row[i])) return -1;
    if (row[i] > row[best]) best = i;
  }
  return static_cast<TokenId>(best);
}

std::vector<std::int32_t> download_ids(Ops& ops, const TensorView& ids) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(ids.cols));
  ops.download(out.data(), ids.row<std::int32_t>(0), out.size() * sizeof(std::int32_t));
  return out;
}

/// Observes the decoder as long as it lives.
class HookScope {
 public:
  HookScope(Decoder& decoder, const DecoderHooks* hooks) : decoder_(decoder) { decoder_.set_hooks(hooks); }
  ~HookScope() { decoder_.set_hooks(nullptr); }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  Decoder& decoder_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace

std::string verification_prompt() {
  return "Write a complete Python LRU cache using a dictionary and a doubly linked list.";
}

std::optional<double> VerificationRow::rate() const {
  return passes_parity() && seconds > 0 ? std::optional<double>(verified_tokens / seconds) : std::nullopt;
}

double distinct_experts_per_slice(const VerificationOracle& oracle, int width) {
  MERERUN_CHECK(width >= 1, "a slice has rows");
  std::size_t slices = 0, distinct = 0;
  for (const auto& rows : oracle.experts) {
    for (std::size_t first = 0; first < rows.size(); first += static_cast<std::size_t>(width)) {
      std::set<std::int32_t> chosen;
      const std::size_t end = std::min(rows.size(), first + static_cast<std::size_t>(width));
      for (std::size_t row = first; row < end; ++row) chosen.insert(rows[row].begin(), rows[row].end());
      distinct += chosen.size();
      ++slices;
    }
  }
  return slices == 0 ? 0.0 : static_cast<double>(distinct) / static_cast<double>(slices);
}

VerificationBenchmark::VerificationBenchmark(Model& model, std::span<const TokenId> prompt,
                                             const std::atomic<bool>& cancelled)
    : model_(model), cancelled_(cancelled), prefilled_(model.new_sequence()) {
  PrefillOptions options;
  options.chunk = model.limits().max_rows;
  options.history = HistoryMode::kNone;
  Prefill prefill(model, prefilled_, prompt, options);
  while (!prefill.is_done()) {
    check_cancelled();
    prefill.step();
  }
}

void VerificationBenchmark::check_cancelled() const {
  if (cancelled_.load(std::memory_order_relaxed))
    throw Error(ErrorCode::kCancelled, "benchmark: interrupted");
}

std::vector<VerificationBenchmark::RowResult> VerificationBenchmark::read_rows(TensorView logits) {
  const auto cols = static_cast<std::size_t>(logits.cols);
  scratch_.resize(static_cast<std::size_t>(logits.rows) * cols);
  model_.ops().download(scratch_.data(), logits.data, scratch_.size() * sizeof(float));
  std::vector<RowResult> rows;
  for (std::size_t r = 0; r < static_cast<std::size_t>(logits.rows); ++r) {
    const std::span<float> row(scratch_.data() + r * cols, cols);
    const TokenId choice = argmax(row);
    rows.push_back({choice, hash_row(row)});
  }
  return rows;
}

VerificationBenchmark::TimedPass VerificationBenchmark::evaluate(std::span<const TokenId> ids,
                                                                 const PassSegment& segment) {
  Ops& ops = model_.ops();
  ops.synchronize();
  const Stopwatch watch;
  const TensorView hidden = model_.decoder().forward(ids, {&segment, 1});
  const TensorView logits = model_.decoder().logits(hidden);
  ops.synchronize();
  return {hidden, logits, watch.seconds()};
}

VerificationOracle VerificationBenchmark::decode(std::vector<TokenId> given, int tokens) {
  VerificationOracle oracle;
  const bool is_forced = !given.empty();
  DecoderHooks hooks;
  if (is_forced && model_.config().is_moe()) {
    oracle.experts.resize(static_cast<std::size_t>(model_.config().layers));
    hooks.routed = [&](int layer, TensorView ids, TensorView) {
      oracle.experts[static_cast<std::size_t>(layer)].push_back(download_ids(model_.ops(), ids));
    };
  }
  const HookScope scope(model_.decoder(), &hooks);

  SequenceState state = prefilled_.fork();
  oracle.first_choice = read_rows(model_.decoder().logits(state.last_hidden())).front().choice;
  TokenId next = is_forced ? given.front() : oracle.first_choice;
  for (int i = 0; i < tokens; ++i) {
    check_cancelled();
    if (next < 0) throw Error(ErrorCode::kNumeric, "oracle: expected numbers in every row, got NaN");
    const PassSegment segment{&state, nullptr, 0, 1};
    const TimedPass pass = evaluate({&next, 1}, segment);
    oracle.seconds += pass.seconds;
    RowResult row = read_rows(pass.logits).front();
    oracle.inputs.push_back(next);
    oracle.choices.push_back(row.choice);
    oracle.hashes.push_back(std::move(row.hash));
    const auto following = static_cast<std::size_t>(i) + 1;
    if (is_forced && following < given.size()) next = given[following];
    if (!is_forced) next = row.choice;
  }
  return oracle;
}

VerificationOracle VerificationBenchmark::greedy_oracle(int tokens) { return decode({}, tokens); }

VerificationOracle VerificationBenchmark::forced_oracle(std::vector<TokenId> inputs) {
  MERERUN_CHECK(!inputs.empty(), "an oracle has rows");
  const int tokens = static_cast<int>(inputs.size());
  return decode(std::move(inputs), tokens);
}

std::uint64_t VerificationBenchmark::cache_bytes(const SequenceState& state, int width) const {
  return state.kv().share_pages().size() * state.kv().geometry().page_bytes() +
         state.recurrent().bytes().size_bytes() + VerifyLog::size_bytes(model_.geometry(), width);
}

VerificationRow VerificationBenchmark::verify(const VerificationOracle& oracle, int width, int trial) {
  VerificationRow row{.width = width, .trial = trial};
  row.greedy_parity = row.logits_parity = true;
  SequenceState state = prefilled_.fork();
  if (read_rows(model_.decoder().logits(state.last_hidden())).front().choice != oracle.first_choice)
    row.greedy_parity = false;

  VerifyLog log = model_.new_verify_log(width);
  const std::span<const TokenId> inputs(oracle.inputs);
  for (std::size_t first = 0; first < inputs.size(); first += static_cast<std::size_t>(width)) {
    check_cancelled();
    const std::size_t rows = std::min(static_cast<std::size_t>(width), inputs.size() - first);
    VerifyTransaction transaction(state, log, static_cast<int>(rows));
    const PassSegment segment{&state, &transaction, 0, static_cast<int>(rows)};
    const TimedPass pass = evaluate(inputs.subspan(first, rows), segment);
    row.seconds += pass.seconds;
    ++row.passes;

    const std::vector<RowResult> got = read_rows(pass.logits);
    for (std::size_t r = 0; r < rows; ++r) {
      const bool same_choice = got[r].choice == oracle.choices[first + r];
      const bool same_bits = got[r].hash == oracle.hashes[first + r];
      row.greedy_parity = row.greedy_parity && same_choice;
      row.logits_parity = row.logits_parity && same_bits;
      if (!(same_choice && same_bits) && !row.first_mismatch) {
        row.first_mismatch = {
            .row = static_cast<int>(first + r), .expected = oracle.choices[first + r], .got = got[r].choice};
      }
    }
    transaction.commit(static_cast<int>(rows), pass.hidden);
    row.verified_tokens += static_cast<int>(rows);
  }
  row.cache_memory_bytes = cache_bytes(state, width);
  if (const auto usage = memory_usage()) row.active_memory_bytes = usage->resident;
  return row;
}

std::vector<VerificationRow> VerificationBenchmark::run(
    const VerificationOracle& oracle, const VerificationOptions& options,
    const std::function<void(const VerificationRow&)>& on_row) {
  std::vector<VerificationRow> rows;
  for (int trial = 1; trial <= options.trials; ++trial) {
    std::vector<int> widths = options.widths;
    if (trial % 2 == 0) std::reverse(widths.begin(), widths.end());
    for (const int width : widths) {
      VerificationRow row = verify(oracle, width, trial);
      row.certified = width <= options.certified_width;
      if (on_row) on_row(row);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<VerificationSummary> summarise(const std::vector<VerificationRow>& rows) {
  std::map<int, std::optional<std::vector<double>>> rates;  // by width; none once a trial failed
  for (const VerificationRow& row : rows) {
    auto& list = rates.try_emplace(row.width, std::vector<double>{}).first->second;
    const auto rate = row.rate();
    if (!rate) list.reset();
    if (list) list->push_back(*rate);
  }
  std::vector<VerificationSummary> summary;
  std::optional<double> one;
  for (const auto& [width, list] : rates) {
    VerificationSummary entry{.width = width, .median_rate = std::nullopt, .ratio_to_one = std::nullopt};
    if (list) entry.median_rate = median(*list);
    if (width == 1) one = entry.median_rate;
    if (entry.median_rate && one) entry.ratio_to_one = *entry.median_rate / *one;
    summary.push_back(entry);
  }
  return summary;
}

}  // namespace mererun
