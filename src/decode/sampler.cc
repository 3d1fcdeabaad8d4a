#include "decode/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/f64_math.h"

namespace mererun {

namespace {

// Below it logits of ordinary size divided by T leave the range of double's useful precision; the largest
// fp32 divided by it is still finite.
constexpr double kSmallestTemperature = 1e-30;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Keeps the largest score and, on a tie, the lower id; independent of the order of offers.
class BestScore {
 public:
  BestScore(double score, TokenId id) : score_(score), id_(id) {}

  double score() const { return score_; }
  TokenId id() const { return id_; }
  void offer(double score, TokenId id) {
    if (score > score_ || (score == score_ && id < id_)) {
      score_ = score;
      id_ = id;
    }
  }

 private:
  double score_;
  TokenId id_;
};

}  // namespace

ConstraintDeadEnd::ConstraintDeadEnd(Position position)
    : Error(ErrorCode::kInvalidArgument,
            fmt::format("constraint_dead_end: position {}: expected an allowed token, got none", position)) {}

Sampler::Sampler(SamplingOptions options, std::span<const TokenId> prompt)
    : options_(std::move(options)),
      adjusts_logits_(options_.has_penalties() || !options_.logit_bias.empty()),
      counts_(options_.repetition_penalty != 1 ? prompt : std::span<const TokenId>{}) {
  std::sort(options_.logit_bias.begin(), options_.logit_bias.end(),
            [](const LogitBias& a, const LogitBias& b) { return a.id < b.id; });
}

TokenId Sampler::choose(std::span<const float> logits, Position position, const TokenMask* mask) {
  const Choice choice = choose_from({logits, {}}, position, mask);
  if (choice.outcome == Outcome::kNotNumeric) {
    fail_expected(ErrorCode::kNumeric, fmt::format("logits for position {}", position), "numbers or -inf",
                  "NaN or +inf");
  }
  if (choice.outcome == Outcome::kDeadEnd) throw ConstraintDeadEnd(position);
  return choice.id;
}

std::optional<TokenId> Sampler::propose(std::span<const float> logits, std::span<const TokenId> ids,
                                        Position position, const TokenMask* mask) {
  MERERUN_CHECK(ids.empty() || ids.size() == logits.size(), "a draft row has one id for each entry");
  const Choice choice = choose_from({logits, ids}, position, mask);
  if (choice.outcome != Outcome::kChosen) return std::nullopt;
  return choice.id;
}

// Without penalties nobody reads the counts, and a long output should not fill a table.
void Sampler::accept(TokenId id) {
  if (options_.has_penalties()) counts_.accept(id);
}

void Sampler::push_tentative(TokenId id) {
  if (options_.has_penalties()) counts_.push_tentative(id);
}

void Sampler::pop_tentative(int n) {
  if (options_.has_penalties()) counts_.pop_tentative(n);
}

std::optional<std::size_t> Sampler::Row::index_of(TokenId id) const {
  if (ids.empty()) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) return std::nullopt;
    return static_cast<std::size_t>(id);
  }
  const auto at = std::lower_bound(ids.begin(), ids.end(), id);
  if (at == ids.end() || *at != id) return std::nullopt;
  return static_cast<std::size_t>(at - ids.begin());
}

Sampler::Choice Sampler::choose_from(Row row, Position position, const TokenMask* mask) {
  RowMaximum maximum = find_maximum(row.logits);
  if (maximum.is_numeric && (mask != nullptr || adjusts_logits_)) {
    row.logits = adjusted(row, mask);
    maximum = find_maximum(row.logits);
  }
  if (!maximum.is_numeric) return {Outcome::kNotNumeric, 0};
  if (maximum.index < 0) return {Outcome::kDeadEnd, 0};
  if (options_.is_greedy() || options_.temperature < kSmallestTemperature) {
    return {Outcome::kChosen, row.id_at(maximum.index)};
  }
  return {Outcome::kChosen, sample(row, maximum, position)};
}

std::span<const float> Sampler::adjusted(const Row& row, const TokenMask* mask) {
  scratch_.assign(row.logits.begin(), row.logits.end());
  if (mask != nullptr) apply_mask(row, *mask);
  for (const LogitBias& entry : options_.logit_bias) {
    if (const auto index = row.index_of(entry.id)) {
      scratch_[*index] = static_cast<float>(static_cast<double>(scratch_[*index]) + entry.bias);
    }
  }
  if (!options_.has_penalties()) return scratch_;
  counts_.for_each_penalised(options_, [&](TokenId id, const auto& adjust) {
    const auto index = row.index_of(id);
    if (!index || scratch_[*index] == kMinusInfinity) return;
    // From the raw logit, so that bias and penalties together are rounded once.
    scratch_[*index] = static_cast<float>(adjust(static_cast<double>(row.logits[*index]) + bias_of(id)));
  });
  return scratch_;
}

void Sampler::apply_mask(const Row& row, const TokenMask& mask) {
  if (!row.ids.empty()) {
    for (std::size_t i = 0; i < scratch_.size(); ++i) {
      if (!mask.allows(row.ids[i])) scratch_[i] = kMinusInfinity;
    }
    return;
  }
  const std::span<const std::uint64_t> words = mask.words();
  for (std::size_t start = 0; start < scratch_.size(); start += 64) {
    const std::uint64_t word = start / 64 < words.size() ? words[start / 64] : 0;
    if (word == ~std::uint64_t{0}) continue;
    const std::size_t end = std::min(scratch_.size(), start + 64);
    const auto at = [&](std::uint64_t bits) {
      return start + static_cast<std::size_t>(std::countr_zero(bits));
    };
    // Touch the fewer of the two: entries to forbid, or entries to bring back.
    if (std::popcount(word) >= 32) {
      for (std::uint64_t bits = ~word; bits != 0; bits &= bits - 1)
        if (at(bits) < end) scratch_[at(bits)] = kMinusInfinity;
      continue;
    }
    std::fill(scratch_.begin() + static_cast<std::ptrdiff_t>(start),
              scratch_.begin() + static_cast<std::ptrdiff_t>(end), kMinusInfinity);
    for (std::uint64_t bits = word; bits != 0; bits &= bits - 1)
      if (at(bits) < end) scratch_[at(bits)] = row.logits[at(bits)];
  }
}

double Sampler::bias_of(TokenId id) const {
  const auto at = std::lower_bound(options_.logit_bias.begin(), options_.logit_bias.end(), id,
                                   [](const LogitBias& entry, TokenId value) { return entry.id < value; });
  return at != options_.logit_bias.end() && at->id == id ? at->bias : 0.0;
}

TokenId Sampler::sample(const Row& row, const RowMaximum& maximum, Position position) {
  const SoftmaxScale scale{static_cast<double>(maximum.value), options_.temperature};
  const auto size = row.logits.size();
  if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < size) {
    select_top_k(row.logits, options_.top_k, candidates_);
    if (options_.top_p < 1) keep_top_p(scale, options_.top_p, candidates_);
  } else if (options_.top_p < 1) {
    select_top_p(row.logits, scale, options_.top_p, candidates_);
  } else {
    return draw_from_all(row, maximum, position);
  }
  if (options_.min_p > 0) {
    // Ranked: the survivors are a prefix, and the first one has weight 1.
    const auto end = std::find_if(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
      return f64_exp(scale.exponent(candidate.value)) < options_.min_p;
    });
    candidates_.erase(end, candidates_.end());
  }
  return draw(row, position);
}

TokenId Sampler::draw(const Row& row, Position position) const {
  const KeyedDraw noise(options_.seed, position);
  const auto score_of = [&](const Candidate& candidate) {
    return static_cast<double>(candidate.value) / options_.temperature +
           noise.gumbel(row.id_at(candidate.index));
  };
  BestScore best(score_of(candidates_.front()), row.id_at(candidates_.front().index));
  for (const Candidate& candidate : candidates_) best.offer(score_of(candidate), row.id_at(candidate.index));
  return best.id();
}

TokenId Sampler::draw_from_all(const Row& row, const RowMaximum& maximum, Position position) const {
  const KeyedDraw noise(options_.seed, position);
  const SoftmaxScale scale{static_cast<double>(maximum.value), options_.temperature};
  const TokenId first = row.id_at(maximum.index);
  BestScore best(static_cast<double>(maximum.value) / options_.temperature + noise.gumbel(first), first);
  const double least_weight = options_.min_p;
  for (std::size_t i = 0; i < row.logits.size(); ++i) {
    const double scaled = static_cast<double>(row.logits[i]) / options_.temperature;
    const TokenId id = row.id_at(static_cast<std::int32_t>(i));
    // The bound spares nearly every logarithm; rounding is monotonic, so it never hides a better score.
    if (scaled + noise.gumbel_bound(id) < best.score()) continue;
    if (least_weight > 0 && f64_exp(scale.exponent(row.logits[i])) < least_weight) continue;
    best.offer(scaled + noise.gumbel(id), id);
  }
  return best.id();
}

}  // namespace mererun
