#include "tests/soak/speculation_soak.h"

#include <fmt/format.h>

#include "engine/run.h"
#include "tests/soak/prompts.h"
#include "tests/support/generation.h"

namespace mererun::testing {
namespace {

GenerateRequest request_for(const SoakPrompt& prompt, int tokens) {
  GenerateRequest request;
  request.chat = prompt.chat;
  request.max_tokens = tokens;
  request.ignores_eos = true;
  request.uses_prefix_cache = false;
  return request;
}

std::vector<TokenId> serial_tokens(Engine& engine, const SoakPrompt& prompt, int tokens) {
  GenerateRequest request = request_for(prompt, tokens);
  request.serial_route = true;
  return generate(engine, std::move(request)).ids;
}

/// Positions where two outputs differ first, or -1.
std::ptrdiff_t first_difference(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  if (a == b) return -1;
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return x - a.begin();
}

/// Drafts of a kind that needs no model: "random", "wrong" or "right".
std::vector<TokenId> scripted(const std::string& kind, const std::vector<TokenId>& truth, std::size_t at,
                              int depth, int vocabulary, std::uint64_t& seed) {
  std::vector<TokenId> ids;
  for (int j = 0; j < depth && at + static_cast<std::size_t>(j) < truth.size(); ++j) {
    const TokenId right = truth[at + static_cast<std::size_t>(j)];
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    const auto random = static_cast<TokenId>((seed >> 33) % static_cast<std::uint64_t>(vocabulary));
    ids.push_back(kind == "right" ? right : kind == "wrong" ? (right + 1) % vocabulary : random);
  }
  return ids;
}

class Soak {
 public:
  Soak(Engine& engine, const SoakPlan& plan) : engine_(engine), plan_(plan) {}

  SoakResult run() {
    const std::vector<SoakPrompt> prompts = soak_prompts(plan_.prompts);
    for (std::size_t i = static_cast<std::size_t>(plan_.first); i < prompts.size();
         i += static_cast<std::size_t>(plan_.stride)) {
      ++result_.prompts;
      const std::vector<TokenId> truth = serial_tokens(engine_, prompts[i], plan_.tokens);
      for (const int width : plan_.widths) {
        for (const bool full : {true, false}) check_model_drafts(prompts[i], i, width, full, truth);
        for (const char* kind : {"random", "wrong", "right"})
          check_scripted(prompts[i], i, width, kind, truth);
      }
    }
    return result_;
  }

 private:
  void note(std::size_t prompt, const std::string& what, int width, const std::vector<TokenId>& ids,
            const std::vector<TokenId>& truth) {
    ++result_.generations;
    result_.tokens += static_cast<std::int64_t>(ids.size());
    if (const auto at = first_difference(ids, truth); at >= 0)
      result_.differences.push_back(
          fmt::format("prompt {} {} width {}: differs at token {}", prompt, what, width, at));
  }

  void check_model_drafts(const SoakPrompt& prompt, std::size_t index, int width, bool full,
                          const std::vector<TokenId>& truth) {
    GenerateRequest request = request_for(prompt, plan_.tokens);
    request.width = width;
    request.full_depth = full;
    const GenerateResult result = generate(engine_, std::move(request));
    result_.drafted += result.acceleration.statistics.drafted();
    result_.accepted += result.acceleration.statistics.accepted();
    note(index, full ? "forced" : "adaptive", width, result.ids, truth);
  }

  void check_scripted(const SoakPrompt& prompt, std::size_t index, int width, const std::string& kind,
                      const std::vector<TokenId>& truth) {
    const PromptPlan plan = plan_prompt(engine_, request_for(prompt, plan_.tokens));
    std::uint64_t seed = index * 977 + static_cast<std::uint64_t>(width);
    ScriptDrafter drafter([&](Position first, int depth) {
      const auto at = static_cast<std::size_t>(first) - plan.ids.size();
      return scripted(kind, truth, at, depth, engine_.resolved().config.vocabulary, seed);
    });
    // Short: a wrong draft costs a whole verification for one token.
    const int tokens = std::min(plan_.tokens, 64);
    IdSink sink;
    GenerationSetup setup{.prompt = plan.ids,
                          .max_tokens = tokens,
                          .width = width,
                          .drafter = &drafter,
                          .context_limit = engine_.context_limit()};
    const GenerationOutcome outcome = run_generation(engine_.model(), setup, sink);
    note(index, kind, width, outcome.ids, {truth.begin(), truth.begin() + tokens});
  }

  Engine& engine_;
  const SoakPlan& plan_;
  SoakResult result_;
};

}  // namespace

SoakResult run_speculation_soak(Engine& engine, const SoakPlan& plan) { return Soak(engine, plan).run(); }

}  // namespace mererun::testing
