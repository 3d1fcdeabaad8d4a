#include "tests/exact/prefix_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/run.h"
#include "tests/engine/tiny_engine.h"
#include "tests/support/models.h"

namespace mererun::testing {
namespace {

using Ids = std::vector<TokenId>;

/// What a run must reproduce.
struct Answer {
  Ids ids;
  std::vector<double> logprobs;     // of every token and its best alternatives
  std::uint64_t prompt_logits = 0;  // hash of the logits that chose the first token
  std::size_t prompt_trunk = 0;     // hash of the state at the prompt's end without its draft history
  std::size_t prompt_state =
      0;  // and with it, of which `prompt_evaluated` transitions are in the head's cache
  int prompt_evaluated = 0;
  std::size_t reply_trunk = 0;  // hash of the state behind the reply
};

std::size_t hash_bytes(const std::vector<std::byte>& bytes) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Ids with_reply(const Ids& prompt, const Ids& reply) {
  Ids all = prompt;
  all.insert(all.end(), reply.begin(), reply.end() - 1);  // the last token is not evaluated
  return all;
}

class Walk {
 public:
  Walk(const std::filesystem::path& folder, const PrefixWalkPlan& plan)
      : plan_(plan), state_(plan.seed * 0x9E3779B97F4A7C15ull + 1) {
    options_ = engine_options_for(folder, plan.budget_bytes);
    if (plan.budget_bytes == 0) options_.prefix_cache_bytes = std::size_t{20} << 20;
    options_.prefix_cache_dir = plan.disk_folder;
    options_.prefix_cache_disk_bytes = static_cast<std::int64_t>(3 * options_.prefix_cache_bytes);
    engine_ = Engine::load(options_);
    vocabulary_ = engine_->resolved().config.vocabulary;
  }

  PrefixWalkResult run() {
    while (static_cast<int>(prompts_.size()) < plan_.conversations) prompts_.push_back(new_prompt());
    for (int step = 0; step < plan_.steps; ++step) {
      if (step % plan_.replace_every == plan_.replace_every - 1) {
        const auto gone = static_cast<std::size_t>(random(static_cast<int>(prompts_.size())));
        answers_.erase(prompts_[gone]);
        prompts_[gone] = new_prompt();
      }
      ask(prompts_[static_cast<std::size_t>(random(static_cast<int>(prompts_.size())))], step);
      ++result_.steps;
      if (!plan_.disk_folder.empty() && step % plan_.restart_every == plan_.restart_every - 1) restart();
    }
    add_counters();
    return result_;
  }

 private:
  void add_counters() {
    const PrefixCacheCounters c = engine_->prefix_cache().counters();
    result_.hits += c.hits;
    result_.exact_hits += c.exact_hits;
    result_.evictions += c.evictions;
    result_.reused_tokens += c.reused_tokens;
    result_.disk_hits += c.disk_hits;
    if (c.disk_corrupt > 0) result_.differences.push_back("a sound file was found damaged");
  }

  void restart() {
    add_counters();
    ++result_.restarts;
    engine_.reset();
    engine_ = Engine::load(options_);
  }

  int random(int n) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int>((state_ >> 33) % static_cast<std::uint64_t>(n));
  }
  Ids tokens(int n) { return random_ids(n, vocabulary_, static_cast<std::uint64_t>(random(1 << 30))); }

  /// A new root, or a child of a prompt that is alive: continued, shortened, diverging anywhere, edited in an
  /// early turn, with a tail of few tokens, or ending at a multiple of a page, tile or chunk.
  Ids new_prompt() {
    if (prompts_.empty() || random(8) == 0) return tokens(1 + random(150));
    const Ids& parent = prompts_[static_cast<std::size_t>(random(static_cast<int>(prompts_.size())))];
    const auto answered = answers_.find(parent);
    Ids child = parent;
    if (answered != answers_.end() && random(3) != 0)  // the reply belongs to the conversation
      child.insert(child.end(), answered->second.ids.begin(), answered->second.ids.end());
    const auto add = [&](int n) {
      const Ids more = tokens(n);
      child.insert(child.end(), more.begin(), more.end());
    };
    const int change = random(6);
    switch (change) {
      case 0: add(1 + random(5)); break;
      case 1: add(10 + random(120)); break;
      case 2:
        child.resize(static_cast<std::size_t>(1 + random(static_cast<int>(child.size()))));
        add(1 + random(60));
        break;
      case 3: {
        auto& id = child[static_cast<std::size_t>(random(static_cast<int>(child.size())))];
        id = (id + 1 + random(vocabulary_ - 1)) % vocabulary_;
        ++result_.edits;
        break;
      }
      case 4: {
        const int sizes[] = {64, 64, 256, 256, 1024};
        const int unit = sizes[random(5)];
        const int length = (static_cast<int>(child.size()) / unit + 1) * unit;
        if (length > kLongest) break;
        add(length - static_cast<int>(child.size()));
        ++result_.boundaries;
        break;
      }
      default: child.resize(static_cast<std::size_t>(1 + random(static_cast<int>(child.size())))); break;
    }
    // Long ones, with their tails, are few: they take most of the time.
    const bool may_be_long = change == 0 || change == 4;
    if (static_cast<int>(child.size()) > (may_be_long ? kLongest : kLong))
      child.resize(static_cast<std::size_t>(1 + random(200)));
    return child;
  }

  GenerateRequest request(const Ids& prompt, bool drafts) {
    GenerateRequest r;
    r.ids = prompt;
    r.max_tokens = kTokens;
    r.ignores_eos = true;
    r.logprobs = 3;
    r.speculation = drafts ? Speculation::kOn : Speculation::kOff;
    r.full_depth = drafts;
    r.width = 2 + random(16);  // at and past the cap of 16 too
    return r;
  }

  static Answer answer_of(const GenerateResult& result) {
    Answer answer;
    answer.ids = result.ids;
    for (const TokenLogprobs& token : result.logprobs) {
      answer.logprobs.push_back(token.row.chosen.logprob);
      for (const TokenLogprob& other : token.row.top) answer.logprobs.push_back(other.logprob);
    }
    return answer;
  }

  const Answer& cold(const Ids& prompt) {
    const auto known = answers_.find(prompt);
    if (known != answers_.end()) return known->second;
    ++result_.cold_runs;
    GenerateRequest r = request(prompt, false);
    r.uses_prefix_cache = false;
    r.serial_route = true;
    Answer answer = answer_of(generate(*engine_, std::move(r)));
    SequenceState state = engine_->model().new_sequence();
    Prefill(engine_->model(), state, prompt, {.chunk = 1 + random(300)}).run();
    answer.prompt_logits =
        hash_bits(to_host(engine_->model().ops(), engine_->model().decoder().logits(state.last_hidden())));
    answer.prompt_trunk = hash_bytes(trunk_bytes(state));
    answer.prompt_state = hash_bytes(state_bytes(state));
    answer.prompt_evaluated = state.history()->evaluated();
    const Ids all = with_reply(prompt, answer.ids);
    Prefill(engine_->model(), state, all, {.chunk = 1 + random(3)}).run();
    answer.reply_trunk = hash_bytes(trunk_bytes(state));
    return answers_.emplace(prompt, std::move(answer)).first->second;
  }

  void ask(const Ids& prompt, int step) {
    const Answer& want = cold(prompt);
    // Phases with drafts, without, and mixed.
    const int phase = step / 50 % 3;
    const bool drafts = phase == 0 || (phase == 2 && random(2) == 0);
    if (phase == 2) ++result_.switches;
    const GenerateResult result = generate(*engine_, request(prompt, drafts));
    const Answer got = answer_of(result);
    const auto report = [&](const char* what) {
      result_.differences.push_back(fmt::format("step {} ({} tokens, {} reused, drafts {}): {}", step,
                                                prompt.size(), result.prefix.matched_tokens, drafts, what));
    };
    if (got.ids != want.ids) report("tokens");
    if (got.logprobs != want.logprobs) report("logits of the answer");
    if (drafts && result.acceleration.draft_history_tokens != static_cast<int>(prompt.size()) - 1)
      report("draft history");
    compare_stored(prompt, result, want, report);
    if (engine_->prefix_cache().bytes() > engine_->prefix_cache().budget_bytes())
      report("bytes above budget");
  }

  /// What the request left behind, or found on disk, holds a cold run's bytes.
  template <typename Report>
  void compare_stored(const Ids& prompt, const GenerateResult& result, const Answer& want,
                      const Report& report) {
    if (result.prefix.outcome == "exact" && result.prefix.tier != "disk") return;
    const auto of = [&](const Ids& ids) {
      const auto stored = engine_->prefix_cache().peek(ids, true);
      return stored && stored->length() == static_cast<int>(ids.size()) ? stored : nullptr;
    };
    if (const auto stored = of(prompt)) {
      ++result_.compared_states;
      if (!stored->logits().empty() && hash_bits(stored->logits()) != want.prompt_logits)
        report("logits of the prompt");
      const SequenceState& state = stored->state();
      if (hash_bytes(trunk_bytes(state)) != want.prompt_trunk) report("state of the prompt");
      // Decoding evaluates transitions in other groups than prefill; where as many are evaluated, all is
      // equal.
      if (state.history()->evaluated() == want.prompt_evaluated) {
        ++result_.compared_histories;
        if (hash_bytes(state_bytes(state)) != want.prompt_state) report("history of the prompt");
      }
    }
    if (const auto stored = of(with_reply(prompt, want.ids))) {
      ++result_.compared_states;
      if (hash_bytes(trunk_bytes(stored->state())) != want.reply_trunk) report("state behind the reply");
    }
  }

  static constexpr int kTokens = 4;
  static constexpr int kLong = 200;
  static constexpr int kLongest = 1100;

  PrefixWalkPlan plan_;
  EngineOptions options_;
  std::uint64_t state_;
  std::unique_ptr<Engine> engine_;
  int vocabulary_ = 0;
  std::vector<Ids> prompts_;
  std::map<Ids, Answer> answers_;
  PrefixWalkResult result_;
};

}  // namespace

PrefixWalkResult run_prefix_walk(const std::filesystem::path& folder, const PrefixWalkPlan& plan) {
  return Walk(folder, plan).run();
}

}  // namespace mererun::testing
