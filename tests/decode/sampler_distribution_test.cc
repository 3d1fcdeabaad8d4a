// Statistical tests of sampled choices. Seeds are fixed, so a verdict never flickers; each bound is also
// shown to catch a sampler that is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "decode/keyed_draw.h"
#include "decode/sampler.h"

namespace mererun {
namespace {

constexpr int kDraws = 200000;
const std::vector<float> kLogits = {1.5f, 0.0f, -1.0f, 2.0f, 0.5f, -0.5f, 1.0f, -2.0f, 0.25f, -1.5f};

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  for (const float logit : logits) p.push_back(std::exp(logit / temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= total;
  return p;
}

using Chooser = std::function<TokenId(Position)>;

/// Pearson's statistic of kDraws choices against probabilities `p`; infinite when an impossible id was
/// chosen.
double chi_square(const Chooser& choose, const std::vector<double>& p) {
  std::vector<double> counts(p.size(), 0.0);
  for (Position position = 0; position < kDraws; ++position)
    counts[static_cast<std::size_t>(choose(position))] += 1;
  double statistic = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * kDraws;
    if (expected == 0) {
      if (counts[i] > 0) return HUGE_VAL;
      continue;
    }
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return statistic;
}

/// Upper bound that a right sampler passes with probability 1 - 1e-6 (Wilson and Hilferty's approximation).
double chi_square_bound(int degrees) {
  const double k = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1 - k + 4.7534 * std::sqrt(k), 3);
}

Chooser sampled(const SamplingOptions& options) {
  return [sampler = Sampler(options, {})](Position position) mutable {
    return sampler.choose(kLogits, position);
  };
}

std::vector<double> kept(std::vector<double> p, const std::vector<std::size_t>& ids) {
  double total = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (std::find(ids.begin(), ids.end(), i) == ids.end()) p[i] = 0;
    total += p[i];
  }
  for (double& value : p) value /= total;
  return p;
}

TEST(SampledDistribution, IsTheSoftmax) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    for (const std::uint64_t seed : {0ULL, 1ULL, 0xdeadbeefdeadbeefULL}) {
      SamplingOptions options;
      options.temperature = temperature;
      options.seed = seed;
      EXPECT_LT(chi_square(sampled(options), softmax(kLogits, temperature)), chi_square_bound(9))
          << temperature << " " << seed;
    }
  }
}

TEST(SampledDistribution, IsTheFilteredSoftmax) {
  const std::vector<double> p = softmax(kLogits, 1.0);  // order of ids: 3 0 6 4 8 1 5 2 9 7
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 4;
  EXPECT_LT(chi_square(sampled(options), kept(p, {3, 0, 6, 4})), chi_square_bound(3));
  options.top_k = 0;
  options.top_p = p[3] + p[0] + p[6] / 2;
  EXPECT_LT(chi_square(sampled(options), kept(p, {3, 0, 6})), chi_square_bound(2));
  options.top_p = 1;
  options.min_p = 0.2;  // e^-1.5 = 0.223, e^-1.75 = 0.174
  EXPECT_LT(chi_square(sampled(options), kept(p, {3, 0, 6, 4})), chi_square_bound(3));
  options.top_k = 5;
  options.top_p = 0.99;
  options.min_p = 0.3;
  EXPECT_LT(chi_square(sampled(options), kept(p, {3, 0, 6})), chi_square_bound(2));
}

TEST(SampledDistribution, RejectsWrongSamplers) {
  const std::vector<double> p = softmax(kLogits, 1.0);
  const double bound = chi_square_bound(9);
  const auto with_noise = [](const std::function<double(double)>& noise_of) {
    return [noise_of](Position position) {
      const KeyedDraw draw(1, position);
      TokenId best = 0;
      double best_score = -HUGE_VAL;
      for (TokenId id = 0; id < static_cast<TokenId>(kLogits.size()); ++id) {
        const double score =
            static_cast<double>(kLogits[static_cast<std::size_t>(id)]) + noise_of(draw.uniform(id));
        if (score > best_score) {
          best_score = score;
          best = id;
        }
      }
      return best;
    };
  };
  // The machinery itself passes with the right noise, so that the failures below are the noise's.
  EXPECT_LT(chi_square(with_noise([](double u) { return -std::log(-std::log(u)); }), p), bound);
  EXPECT_GT(chi_square(with_noise([](double u) { return -std::log(u); }), p), bound) << "exponential noise";
  EXPECT_GT(chi_square(with_noise([](double u) { return std::log(-std::log(u)); }), p), bound) << "sign";
  EXPECT_GT(chi_square(with_noise([](double u) { return std::log(u) - std::log(1 - u); }), p), bound)
      << "logistic";

  SamplingOptions options;
  options.temperature = 1.03;
  EXPECT_GT(chi_square(sampled(options), p), bound) << "temperature off by 3%";
  options.temperature = 1;
  options.top_k = 9;
  EXPECT_GT(chi_square(sampled(options), p), bound) << "one id of 1% lost";
}

TEST(SampledDistribution, PositionsAndSeedsAreIndependent) {
  // Joint counts of two choices over a table of pairs.
  SamplingOptions options;
  options.temperature = 1;
  const std::vector<double> p = softmax(kLogits, 1.0);
  std::vector<double> joint;
  for (const double a : p) {
    for (const double b : p) joint.push_back(a * b);
  }
  const auto size = static_cast<TokenId>(p.size());
  Sampler sampler(options, {});
  const Chooser neighbours = [&](Position position) {
    return sampler.choose(kLogits, 2 * position) * size + sampler.choose(kLogits, 2 * position + 1);
  };
  EXPECT_LT(chi_square(neighbours, joint), chi_square_bound(99));
  options.seed = 1;
  Sampler other(options, {});
  const Chooser seeds = [&](Position position) {
    return sampler.choose(kLogits, position) * size + other.choose(kLogits, position);
  };
  EXPECT_LT(chi_square(seeds, joint), chi_square_bound(99));
  const Chooser same = [&](Position position) {
    return sampler.choose(kLogits, position) * size + sampler.choose(kLogits, position);
  };
  EXPECT_GT(chi_square(same, joint), chi_square_bound(99)) << "a shared draw must not pass";
}

TEST(SampledDistribution, DraftsAgreeAlmostAsOftenAsTheRatioTestAccepts) {
  // The emitted id is always the target's, so its distribution is exact; the coupling only decides how often
  // a draft is right. The ratio test accepts with probability sum of min(p, q).
  std::vector<float> draft = kLogits;
  for (std::size_t i = 0; i < draft.size(); ++i) draft[i] += i % 2 == 0 ? 0.15f : -0.15f;
  SamplingOptions options;
  options.temperature = 1;
  Sampler sampler(options, {});
  int agreed = 0;
  for (Position position = 0; position < kDraws; ++position) {
    agreed += sampler.propose(draft, {}, position) == sampler.choose(kLogits, position) ? 1 : 0;
  }
  const std::vector<double> p = softmax(kLogits, 1.0);
  const std::vector<double> q = softmax(draft, 1.0);
  double bound = 0;
  for (std::size_t i = 0; i < p.size(); ++i) bound += std::min(p[i], q[i]);
  const double rate = static_cast<double>(agreed) / kDraws;
  EXPECT_LT(rate, bound + 0.005);
  EXPECT_GT(rate, bound - 0.03);
}

}  // namespace
}  // namespace mererun
