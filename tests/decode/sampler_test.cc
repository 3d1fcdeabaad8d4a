#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "base/f64_math.h"

namespace mererun {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_row(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> row(size);
  // Quarter steps, so that ties occur everywhere.
  for (float& value : row) value = 0.25f * std::round(std::normal_distribution<float>(0.0f, 8.0f)(random));
  return row;
}

/// The rules of the contract as plain loops over one sorted list; shares only the noise and exp with the
/// sampler.
TokenId choose_plainly(const SamplingOptions& options, const std::vector<TokenId>& prompt,
                       const std::vector<TokenId>& output, const std::vector<float>& row, Position position,
                       const TokenMask* mask) {
  struct Entry {
    float value;
    TokenId id;
  };
  std::map<TokenId, double> bias;
  for (const LogitBias& entry : options.logit_bias) bias[entry.id] = entry.bias;
  std::vector<Entry> entries;
  for (TokenId id = 0; id < static_cast<TokenId>(row.size()); ++id) {
    if (mask != nullptr && !mask->allows(id)) continue;
    if (row[static_cast<std::size_t>(id)] == -kInfinity) continue;
    const auto in_output = std::count(output.begin(), output.end(), id);
    const bool seen = in_output > 0 || std::count(prompt.begin(), prompt.end(), id) > 0;
    double value = row[static_cast<std::size_t>(id)] + bias[id];
    if (seen) value = value > 0 ? value / options.repetition_penalty : value * options.repetition_penalty;
    if (in_output > 0)
      value -= options.presence_penalty + options.frequency_penalty * static_cast<double>(in_output);
    entries.push_back({static_cast<float>(value), id});
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.value > b.value; });
  if (options.temperature == 0 || options.top_k == 1) return entries.front().id;
  if (options.top_k > 0) entries.resize(std::min(entries.size(), static_cast<std::size_t>(options.top_k)));
  const auto weight = [&](const Entry& entry) {
    return f64_exp((static_cast<double>(entry.value) - static_cast<double>(entries.front().value)) /
                   options.temperature);
  };
  if (options.top_p < 1) {
    double total = 0;
    for (const Entry& entry : entries) total += weight(entry);
    double mass = 0;
    std::size_t kept = 0;
    while (mass < options.top_p * total) mass += weight(entries[kept++]);
    entries.resize(kept);
  }
  const KeyedDraw noise(options.seed, position);
  TokenId best = -1;
  double best_score = 0;
  for (const Entry& entry : entries) {
    if (weight(entry) < options.min_p) continue;
    const double score = static_cast<double>(entry.value) / options.temperature + noise.gumbel(entry.id);
    if (best < 0 || score > best_score) {
      best = entry.id;
      best_score = score;
    }
  }
  return best;
}

std::vector<SamplingOptions> option_grid() {
  std::vector<SamplingOptions> grid;
  for (const double temperature : {0.0, 1e-6, 0.7, 1.0, 2.0}) {
    for (const int top_k : {0, 1, 7, 100000}) {
      for (const double top_p : {1.0, 0.9, 0.3}) {
        for (const double min_p : {0.0, 0.05, 1.0}) {
          SamplingOptions options;
          options.temperature = temperature;
          options.top_k = top_k;
          options.top_p = top_p;
          options.min_p = min_p;
          options.seed = 1000 + grid.size();
          grid.push_back(options);
        }
      }
    }
  }
  return grid;
}

TEST(Sampler, FollowsTheContractForEveryCombinationOfFilters) {
  for (const SamplingOptions& options : option_grid()) {
    for (std::uint32_t seed = 0; seed < 4; ++seed) {
      const std::vector<float> row = random_row(seed < 3 ? 300 : 3000, seed);
      Sampler sampler(options, {});
      for (Position position = 10; position < 14; ++position) {
        ASSERT_EQ(sampler.choose(row, position), choose_plainly(options, {}, {}, row, position, nullptr))
            << "T " << options.temperature << " k " << options.top_k << " p " << options.top_p << " min "
            << options.min_p << " row " << seed;
      }
    }
  }
}

TEST(Sampler, FollowsTheContractUnderMaskBiasAndPenalties) {
  const std::vector<TokenId> prompt = {1, 2, 3, 3, 250, 299};
  for (SamplingOptions options : option_grid()) {
    options.presence_penalty = 0.7;
    options.frequency_penalty = -0.3;
    options.repetition_penalty = 1.3;
    options.logit_bias = {{17, -100.0}, {3, 4.25}, {120, 9.1}};
    const std::vector<float> row = random_row(300, 5);
    TokenMask mask(300);
    for (TokenId id = 0; id < 300; ++id) {
      if (id % 3 != 0 || id % 5 == 0) mask.allow(id);
    }
    Sampler sampler(options, prompt);
    std::vector<TokenId> output;
    for (Position position = 6; position < 20; ++position) {
      const TokenMask* used = position % 2 == 0 ? &mask : nullptr;
      const TokenId id = sampler.choose(row, position, used);
      ASSERT_EQ(id, choose_plainly(options, prompt, output, row, position, used));
      sampler.accept(id);
      output.push_back(id);
    }
  }
}

TEST(Sampler, EveryRepetitionPenaltyCountsThePromptsTokens) {
  for (const double penalty : {0.5, 1.0, 2.0, 3.0}) {
    SamplingOptions options;
    options.temperature = 0;
    options.repetition_penalty = penalty;
    const std::vector<float> row = {3.0f, 2.5f};
    Sampler sampler(options, std::vector<TokenId>{0});
    EXPECT_EQ(sampler.choose(row, 1), penalty > 1 ? 1 : 0) << penalty;
  }
}

TEST(SamplerDeathTest, TakesAwayOnlyTentativeTokensThatStand) {
  SamplingOptions options;
  options.presence_penalty = 1;  // without penalties nothing is counted
  Sampler sampler(options, {});
  sampler.push_tentative(3);
  sampler.pop_tentative(0);
  EXPECT_DEATH(sampler.pop_tentative(2), "more tentative tokens");
  EXPECT_DEATH(sampler.pop_tentative(-1), "more tentative tokens");
  EXPECT_DEATH(sampler.accept(4), "while tentative ones stand");
}

TEST(Sampler, EvaluatesLaterRowsAsIfTheDraftsHadBeenEmitted) {
  SamplingOptions options;
  options.presence_penalty = 1.5;
  options.frequency_penalty = 0.25;
  options.repetition_penalty = 1.2;
  for (const double temperature : {0.0, 0.8}) {
    options.temperature = temperature;
    const std::vector<TokenId> prompt = {4, 5, 6};
    Sampler sampler(options, prompt);
    std::vector<TokenId> output;
    for (int round = 0; round < 30; ++round) {
      const std::vector<float> row = random_row(40, static_cast<std::uint32_t>(round));
      const std::vector<TokenId> drafts = {static_cast<TokenId>(round % 40), 7, 7,
                                           static_cast<TokenId>(round % 5)};
      for (std::size_t i = 0; i <= drafts.size(); ++i) {
        Sampler serial(options, prompt);
        for (const TokenId id : output) serial.accept(id);
        for (std::size_t j = 0; j < i; ++j) serial.accept(drafts[j]);
        const auto position = static_cast<Position>(output.size() + i);
        ASSERT_EQ(sampler.choose(row, position), serial.choose(row, position))
            << "round " << round << " row " << i;
        if (i < drafts.size()) sampler.push_tentative(drafts[i]);
      }
      sampler.pop_tentative(static_cast<int>(drafts.size()));
      output.push_back(drafts[0]);
      sampler.accept(drafts[0]);
    }
  }
}

TEST(Sampler, TakesTheLowestIdOnTies) {
  Sampler sampler(SamplingOptions{}, {});
  std::vector<float> row(248320, -3.0f);
  for (const std::size_t id : {248319u, 100000u, 4097u}) {
    row[id] = 2.0f;
    EXPECT_EQ(sampler.choose(row, 0), static_cast<TokenId>(id));
  }
}

TEST(Sampler, RefusesNaNAndInfinityAnywhereInTheRow) {
  SamplingOptions sampled;
  sampled.temperature = 1;
  for (const SamplingOptions& options : {SamplingOptions{}, sampled}) {
    for (const std::size_t at : {0u, 1500u, 2999u}) {
      for (const float bad : {kNaN, kInfinity}) {
        std::vector<float> row(3000, 0.5f);
        row[at] = bad;
        TokenMask mask(3000);
        mask.allow(1);  // the bad entry counts even where the mask hides it
        for (const TokenMask* used :
             {static_cast<const TokenMask*>(nullptr), static_cast<const TokenMask*>(&mask)}) {
          try {
            Sampler(options, {}).choose(row, 7, used);
            FAIL() << "no error";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kNumeric);
          }
        }
        EXPECT_EQ(Sampler(options, {}).propose(row, {}, 7), std::nullopt);
      }
    }
  }
}

TEST(Sampler, ReportsADeadEndByName) {
  const std::vector<float> row(100, 1.0f);
  const TokenMask nothing(100);
  SamplingOptions sampled;
  sampled.temperature = 1;
  sampled.top_k = 5;
  for (const SamplingOptions& options : {SamplingOptions{}, sampled}) {
    try {
      Sampler(options, {}).choose(row, 31, &nothing);
      FAIL() << "no error";
    } catch (const ConstraintDeadEnd& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, 20), "constraint_dead_end:");
    }
    EXPECT_EQ(Sampler(options, {}).propose(row, {}, 31, &nothing), std::nullopt);
    EXPECT_THROW(Sampler(options, {}).choose(std::vector<float>(100, -kInfinity), 31), ConstraintDeadEnd);
  }
}

TEST(Sampler, NeverChoosesWhatTheMaskForbids) {
  std::vector<float> row(130, 0.0f);
  row[64] = 1e30f;
  row[65] = -kInfinity;
  for (SamplingOptions options : option_grid()) {
    options.logit_bias = {{64, 100.0}};
    Sampler sampler(options, {});
    for (const int vocabulary : {130, 100}) {
      TokenMask mask(vocabulary);
      mask.allow(65);
      mask.allow(66);
      EXPECT_EQ(sampler.choose(row, 3, &mask), 66);
    }
  }
}

TEST(Sampler, TinyTemperaturesChooseTheMaximum) {
  for (const double temperature : {1e-6, 1e-12, 1e-29, 1e-30, 1e-31, 1e-300, 4.9e-324}) {
    for (const float scale : {1.0f, 1e30f, -1e30f, 3e38f, -3e38f}) {
      SamplingOptions options;
      options.temperature = temperature;
      options.top_p = 0.9;
      std::vector<float> row = {0.5f * scale, 1.0f * scale, 0.25f * scale, -kInfinity};
      const TokenId expected = scale > 0 ? 1 : 2;
      for (const int top_k : {0, 3}) {
        options.top_k = top_k;
        for (const double top_p : {0.9, 1.0}) {
          options.top_p = top_p;
          EXPECT_EQ(Sampler(options, {}).choose(row, 0), expected) << temperature << " " << scale;
        }
      }
    }
  }
}

TEST(Sampler, TakesTheLowestIdOfEqualScores) {
  // 1e30 swallows the noise, so the scores are equal.
  std::vector<float> row(20, 0.0f);
  row[5] = row[9] = row[13] = 1e30f;
  SamplingOptions options;
  options.temperature = 1;
  for (options.top_k = 0; options.top_k <= 3; options.top_k += 3) {
    Sampler sampler(options, {});
    for (Position position = 0; position < 20; ++position) EXPECT_EQ(sampler.choose(row, position), 5);
  }
}

TEST(Sampler, DraftsFromACompactRowWithTheNoiseOfTheFullOne) {
  // Where the full row offers nothing outside the compact vocabulary, both must choose the same id.
  std::vector<TokenId> ids;
  for (TokenId id = 3; id < 900; id += 7) ids.push_back(id);
  const std::vector<float> compact = random_row(ids.size(), 3);
  std::vector<float> full(900, -kInfinity);
  for (std::size_t i = 0; i < ids.size(); ++i) full[static_cast<std::size_t>(ids[i])] = compact[i];
  TokenMask mask(900);
  for (TokenId id = 0; id < 700; ++id) mask.allow(id);
  for (SamplingOptions options : option_grid()) {
    options.logit_bias = {{10, 3.0}, {11, 50.0}, {899, 1.0}};
    options.frequency_penalty = 0.5;
    Sampler sampler(options, {});
    sampler.accept(17);
    sampler.push_tentative(10);
    for (Position position = 0; position < 5; ++position) {
      EXPECT_EQ(sampler.propose(compact, ids, position), sampler.choose(full, position));
      EXPECT_EQ(sampler.propose(compact, ids, position, &mask), sampler.choose(full, position, &mask));
    }
  }
}

TEST(Sampler, SeedDecidesTheTextAndNothingElseDoes) {
  SamplingOptions options;
  options.temperature = 1;
  options.seed = 42;
  const auto text = [&options](Sampler* other) {
    Sampler sampler(options, {});
    std::vector<TokenId> ids;
    for (Position position = 0; position < 50; ++position) {
      if (other != nullptr) other->choose(random_row(64, 99), position);
      ids.push_back(sampler.choose(random_row(64, static_cast<std::uint32_t>(position)), position));
    }
    return ids;
  };
  const std::vector<TokenId> first = text(nullptr);
  SamplingOptions other_options = options;
  other_options.seed = 7;
  Sampler other(other_options, {});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(text(i % 2 == 0 ? &other : nullptr), first);
  options.seed = 43;
  EXPECT_NE(text(nullptr), first);
  options.seed = ~std::uint64_t{0};
  EXPECT_NE(text(nullptr), first);
}

TEST(Sampler, KnowsWhenADeviceMayTakeTheArgmax) {
  SamplingOptions options;
  EXPECT_TRUE(Sampler(options, {}).is_plain_argmax());
  options.top_k = 1;
  options.temperature = 1;
  EXPECT_TRUE(Sampler(options, {}).is_plain_argmax());
  options.frequency_penalty = 0.1;
  EXPECT_FALSE(Sampler(options, {}).is_plain_argmax());
  options = {};
  options.logit_bias = {{0, 1.0}};
  EXPECT_FALSE(Sampler(options, {}).is_plain_argmax());
  options = {};
  options.temperature = 0.5;
  EXPECT_FALSE(Sampler(options, {}).is_plain_argmax());
}

TEST(SamplingOptions, EveryEndOfARangeChoosesAmongFiniteLogits) {
  const std::vector<float> logits = {1e30f, -1e30f, 0.0f, 3.0f};
  const std::vector<TokenId> prompt = {0, 1, 2, 3};
  const std::vector<std::function<void(SamplingOptions&)>> ends = {
      [](auto& o) { o.temperature = 5e-324; },
      [](auto& o) { o.temperature = 2; },
      [](auto& o) { o.top_k = 1; },
      [](auto& o) { o.top_k = INT_MAX; },
      [](auto& o) { o.top_p = 5e-324; },
      [](auto& o) { o.top_p = 1; },
      [](auto& o) { o.min_p = 0; },
      [](auto& o) { o.min_p = 1; },
      [](auto& o) { o.presence_penalty = -2; },
      [](auto& o) { o.presence_penalty = 2; },
      [](auto& o) { o.frequency_penalty = -2; },
      [](auto& o) { o.frequency_penalty = 2; },
      [](auto& o) { o.repetition_penalty = 1e-6; },
      [](auto& o) { o.repetition_penalty = 1e6; },
      [](auto& o) {
        o.logit_bias = {{1, -100.0}};
      },
      [](auto& o) {
        o.logit_bias = {{1, 100.0}};
      }};
  for (const double temperature : {0.0, 1.0}) {
    for (std::size_t i = 0; i < ends.size(); ++i) {
      SamplingOptions options;
      options.temperature = temperature;
      ends[i](options);
      validate(options, 4);
      Sampler sampler(options, prompt);
      for (Position position = 4; position < 8; ++position) {
        const TokenId id = sampler.choose(logits, position);
        EXPECT_TRUE(id >= 0 && id < 4) << i;
        sampler.accept(id);
      }
    }
  }
}

TEST(SamplingOptions, NamesTheIdsThatABiasMayHave) {
  SamplingOptions options;
  options.logit_bias = {{100, 0.0}};
  try {
    validate(options, 100);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ids from 0 to 99, got 100"), std::string::npos) << error.what();
  }
}

TEST(SamplingOptions, NamesTheFieldThatIsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto field_of = [](auto change) -> std::string {
    SamplingOptions options;
    change(options);
    try {
      validate(options, 100);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      const std::string message = error.what();
      return message.substr(0, message.find_first_of(": "));
    }
    return "";
  };
  using O = SamplingOptions;
  for (const double bad : {-0.01, 2.01, nan}) {
    EXPECT_EQ(field_of([&](O& o) { o.temperature = bad; }), "temperature");
  }
  for (const double bad : {0.0, -1.0, 1.01, nan}) EXPECT_EQ(field_of([&](O& o) { o.top_p = bad; }), "top_p");
  for (const double bad : {-0.01, 1.01, nan}) EXPECT_EQ(field_of([&](O& o) { o.min_p = bad; }), "min_p");
  EXPECT_EQ(field_of([](O& o) { o.top_k = -1; }), "top_k");
  for (const double bad : {-2.01, 2.01, nan}) {
    EXPECT_EQ(field_of([&](O& o) { o.presence_penalty = bad; }), "presence_penalty");
    EXPECT_EQ(field_of([&](O& o) { o.frequency_penalty = bad; }), "frequency_penalty");
  }
  for (const double bad : {0.0, -1.0, 9e-7, 1.1e6, nan, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(field_of([&](O& o) { o.repetition_penalty = bad; }), "repetition_penalty");
  }
  EXPECT_EQ(field_of([](O& o) { o.logit_bias = {{100, 0.0}}; }), "logit_bias");
  EXPECT_EQ(field_of([](O& o) { o.logit_bias = {{-1, 0.0}}; }), "logit_bias");
  EXPECT_EQ(field_of([](O& o) { o.logit_bias = {{5, 100.5}}; }), "logit_bias");
  EXPECT_EQ(field_of([](O& o) { o.logit_bias = {{5, 1.0}, {5, 2.0}}; }), "logit_bias");
  EXPECT_EQ(field_of([](O& o) {
              o.temperature = 2;
              o.top_p = 1e-9;
              o.min_p = 1;
              o.presence_penalty = -2;
              o.frequency_penalty = 2;
              o.repetition_penalty = 0.01;
              o.logit_bias = {{99, -100.0}, {0, 100.0}};
            }),
            "");
}

}  // namespace
}  // namespace mererun
