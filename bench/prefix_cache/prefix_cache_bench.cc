// What the prefix cache saves, both arms in one run:
//   prefix_cache_bench CHECKPOINT_FOLDER [CONVERSATION_TOKENS [PREFIX_TOKENS]]
// Time to first token of a follow-up after a conversation (default 16,384 tokens) from the cache and cold;
// memory of a snapshot against the formula of docs/prefix-cache.md, and of twenty turns against one; a stored
// prefix (default 30,000 tokens) computed, and loaded from disk by new engines. 0 leaves a part out. JSON on
// stdout.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/build_info.h"
#include "base/error.h"
#include "engine/memory_usage.h"
#include "engine/run.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

constexpr int kRepeats = 3;
constexpr int kFollowUp = 40;

Ids text_ids(const Engine& engine, int tokens) {
  Ids ids;
  for (int i = 0; static_cast<int>(ids.size()) < tokens; ++i) {
    const Ids line = engine.tokenizer().encode(
        fmt::format("Line {}: the harbor was quiet and {} boats lay at the quay.\n", i, i * 7 % 90));
    ids.insert(ids.end(), line.begin(), line.end());
  }
  ids.resize(static_cast<std::size_t>(tokens));
  return ids;
}

GenerateResult ask(Engine& engine, const Ids& prompt, bool cached, int tokens = 1) {
  GenerateRequest request;
  request.ids = prompt;
  request.max_tokens = tokens;
  request.ignores_eos = true;
  request.uses_prefix_cache = cached;
  return generate(engine, std::move(request));
}

double first_token(const GenerateResult& r) {
  return r.timings.prefill_seconds + r.timings.first_token_seconds;
}

Json spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {{"medianSeconds", values[values.size() / 2]},
          {"minSeconds", values.front()},
          {"maxSeconds", values.back()}};
}

EngineOptions options_for(const fs::path& folder, const fs::path& cache) {
  EngineOptions options;
  options.model = {.model = "", .root = folder.string()};
  options.prefix_cache_bytes = std::size_t{2} << 30;
  options.prefix_cache_dir = cache;
  options.cost = {.measured = false};
  options.context_limit = 32768;
  options.process.speculation = Speculation::kOn;
  return options;
}

Json measure_follow_up(Engine& engine, int tokens) {
  Ids talk = text_ids(engine, tokens);
  const GenerateResult first = ask(engine, talk, true, 16);
  talk.insert(talk.end(), first.ids.begin(), first.ids.end());
  std::vector<double> warm;
  GenerateResult hit;
  Ids prompt;
  for (int i = 0; i < kRepeats; ++i) {
    prompt = talk;
    for (int k = 0; k < kFollowUp; ++k) prompt.push_back(100 + 41 * i + k);
    hit = ask(engine, prompt, true);
    warm.push_back(first_token(hit));
  }
  const GenerateResult miss = ask(engine, prompt, false);
  if (hit.ids != miss.ids) throw Error(ErrorCode::kInternal, "follow-up: expected equal tokens, got others");
  return {{"promptTokens", prompt.size()},
          {"reusedTokens", hit.prefix.matched_tokens},
          {"cached", spread(warm)},
          {"coldSeconds", first_token(miss)},
          {"coldOverCached", first_token(miss) / spread(warm)["medianSeconds"].get<double>()}};
}

std::uint64_t resident_bytes() {
  const auto usage = memory_usage();
  return usage ? usage->resident : 0;
}

/// The formula of docs/prefix-cache.md for what a snapshot does not share.
std::size_t formula_bytes(const StateGeometry& g, int length, int waiting, int vocabulary) {
  const DeltaShape& d = g.delta;
  const auto state = static_cast<std::size_t>(d.value_heads * d.key_dim * d.value_dim +
                                              (d.conv_taps - 1) * d.conv_channels());
  return 4 * (static_cast<std::size_t>(g.delta_layers) * state +
              static_cast<std::size_t>(g.hidden) * static_cast<std::size_t>(1 + waiting) +
              static_cast<std::size_t>(length + waiting + vocabulary));
}

/// Resident memory that copies of one snapshot take, beside the formula.
Json measure_snapshot(const Snapshot& snapshot) {
  constexpr int kCopies = 64;
  std::vector<std::shared_ptr<const Snapshot>> copies;
  const std::uint64_t before = resident_bytes();
  for (int i = 0; i < kCopies; ++i)
    copies.push_back(Snapshot::capture(snapshot.state(), {snapshot.ids().begin(), snapshot.ids().end()},
                                       {snapshot.logits().begin(), snapshot.logits().end()},
                                       snapshot.kind()));
  const double each = static_cast<double>(resident_bytes() - before) / kCopies;
  const auto& history = snapshot.state().history();
  const std::size_t formula =
      formula_bytes(snapshot.state().geometry(), snapshot.length(), history ? history->waiting() : 0,
                    static_cast<int>(snapshot.logits().size()));
  std::size_t pages = 0;
  for (const KvPageRef& page : snapshot.pages()) pages += page->bytes.size_bytes();
  return {{"tokens", snapshot.length()},
          {"formulaBytes", formula},
          {"residentBytesEach", each},
          {"residentOverFormula", each / static_cast<double>(formula)},
          {"sharedPageBytes", pages}};
}

/// A long conversation goes on for twenty turns: what the cache holds after the first and the last.
Json measure_turns(Engine& engine, const GenerateResult& first) {
  const auto snapshot = engine.prefix_cache().peek(first.prompt_ids);
  Json out{{"conversationTokens", first.prompt_ids.size()},
           {"bytesAfterOne", engine.prefix_cache().bytes()},
           {"snapshot", measure_snapshot(*snapshot)}};
  Ids talk = first.prompt_ids;
  Ids reply = first.ids;
  for (int turn = 1; turn <= 20; ++turn) {
    talk.insert(talk.end(), reply.begin(), reply.end());
    for (int k = 0; k < kFollowUp; ++k) talk.push_back(100 + 41 * turn + k);
    reply = ask(engine, talk, true, 16).ids;
  }
  out["bytesAfterTwenty"] = engine.prefix_cache().bytes();
  out["snapshotsAfterTwenty"] = engine.prefix_cache().entries();
  out["twentyOverOne"] = out["bytesAfterTwenty"].get<double>() / out["bytesAfterOne"].get<double>();
  return out;
}

/// A long prompt computed by one engine, its memory, and the same prompt loaded from disk by others.
void measure_prefix(Json& out, const fs::path& folder, const fs::path& cache, int tokens) {
  GenerateResult miss;
  std::int64_t bytes = 0;
  {
    const auto engine = Engine::load(options_for(folder, cache));
    miss = ask(*engine, text_ids(*engine, tokens), true);
    if (engine->disk_store() != nullptr) {
      engine->disk_store()->flush();
      bytes = engine->disk_store()->statistics().bytes;
    }
    out["memory"] = measure_turns(*engine, miss);
  }
  if (cache.empty()) return;
  std::vector<double> loaded;
  for (int i = 0; i < kRepeats; ++i) {
    const auto engine = Engine::load(options_for(folder, cache));
    const GenerateResult hit = ask(*engine, miss.prompt_ids, true);
    if (hit.ids != miss.ids || hit.prefix.tier != "disk" || hit.prefix.matched_tokens != tokens)
      throw Error(ErrorCode::kInternal, "disk: expected an exact replay from disk, got something else");
    loaded.push_back(first_token(hit));
  }
  out["disk"] = {{"prefixTokens", tokens},
                 {"computedSeconds", first_token(miss)},
                 {"loaded", spread(loaded)},
                 {"computedOverLoaded", first_token(miss) / spread(loaded)["medianSeconds"].get<double>()},
                 {"storeBytes", bytes}};
}

}  // namespace
}  // namespace mererun

int main(int argc, char** argv) {
  using namespace mererun;
  if (argc < 2) {
    fmt::print(stderr, "usage: {} CHECKPOINT_FOLDER [CONVERSATION_TOKENS [PREFIX_TOKENS]]\n", argv[0]);
    return 64;
  }
  const fs::path cache = fs::temp_directory_path() / fmt::format("mererun-prefix-bench-{}", ::getpid());
  try {
    const int conversation = argc > 2 ? std::atoi(argv[2]) : 16384;
    const int prefix = argc > 3 ? std::atoi(argv[3]) : 30000;
    Json out{{"commit", std::string(build_commit())}, {"contractVersion", kNumericContractVersion}};
    if (conversation > 0) {
      const auto engine = Engine::load(options_for(argv[1], {}));
      out["backend"] = std::string(engine->backend_name());
      out["followUp"] = measure_follow_up(*engine, conversation);
    }
    if (prefix > 0) measure_prefix(out, argv[1], is_disk_store_built() ? cache : fs::path(), prefix);
    fs::remove_all(cache);
    fmt::print("{}\n", out.dump(2));
    return 0;
  } catch (const Error& error) {
    fs::remove_all(cache);
    fmt::print(stderr, "prefix cache bench: {}\n", error.what());
    return 70;
  }
}
