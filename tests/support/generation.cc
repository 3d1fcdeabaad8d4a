#include "tests/support/generation.h"

#include <algorithm>

#include "decode/draft_history_pass.h"

namespace mererun::testing {

ChoiceOutcome IdSink::on_choice(const TargetChoice& choice) {
  if (std::find(eos.begin(), eos.end(), choice.id) != eos.end()) return {false, FinishReason::kStop};
  ids.push_back(choice.id);
  if (logits) row_hashes.push_back(hash_bits(choice.logits));
  ChoiceOutcome outcome;
  if (stop) outcome.finish = stop(ids);
  if (!outcome.finish && static_cast<int>(ids.size()) >= max_tokens) outcome.finish = FinishReason::kLength;
  return outcome;
}

OracleRun run_oracle(Model& model, std::span<const TokenId> prompt, int tokens,
                     const SamplingOptions& sampling, TokenConstraint* constraint) {
  OracleRun run;
  Sampler sampler(sampling, prompt);
  SequenceState state = model.new_sequence();
  std::vector<float> row;
  const auto evaluate = [&](TokenId id) {
    const PassSegment segment{&state, nullptr, 0, 1};
    row = to_host(model.ops(), model.decoder().logits(model.decoder().forward({&id, 1}, {&segment, 1})));
  };
  for (const TokenId id : prompt) evaluate(id);
  run.states.push_back(state_bytes(state));
  for (int i = 0; i < tokens; ++i) {
    run.ids.push_back(
        sampler.choose(row, state.length(), constraint != nullptr ? constraint->mask() : nullptr));
    sampler.accept(run.ids.back());
    if (constraint != nullptr) constraint->accept(run.ids.back());
    evaluate(run.ids.back());
    run.states.push_back(state_bytes(state));
  }
  return run;
}

std::vector<std::byte> evaluated_bytes(Model& model, SequenceState& state) {
  if (state.history()->waiting() > 0)
    evaluate_waiting(*model.head(), *state.history(), model.limits().max_rows);
  return state_bytes(state);
}

namespace {

SequenceState prefilled(Model& model, const GenerationSetup& setup) {
  if (setup.start != nullptr) return setup.start->fork();
  SequenceState state = model.new_sequence();
  Prefill(model, state, setup.prompt, {.history = setup.history}).run();
  return state;
}

std::optional<VerifyLog> log_for(Model& model, const GenerationSetup& setup) {
  if (setup.drafter == nullptr) return std::nullopt;
  return model.new_verify_log(setup.width);
}

}  // namespace

StartedGeneration::StartedGeneration(Model& model, const GenerationSetup& setup, IdSink& sink)
    : state(prefilled(model, setup)),
      sampler(setup.sampling, setup.prompt),
      log(log_for(model, setup)),
      policy({.max_depth = setup.width - 1, .cost = setup.cost}),
      constraint(setup.constraint != nullptr ? setup.constraint->clone() : nullptr),
      generation({.model = model,
                  .state = state,
                  .sampler = sampler,
                  .sink = sink,
                  .log = log ? &*log : nullptr,
                  .drafter = setup.drafter,
                  .policy = log ? &policy : nullptr,
                  .constraint = constraint.get(),
                  .cancelled = setup.cancelled,
                  .profile = setup.profile},
                 {.max_tokens = setup.max_tokens, .context_limit = setup.context_limit}) {
  sink.max_tokens = setup.max_tokens;
  generation.begin();
}

GenerationOutcome run_generation(Model& model, const GenerationSetup& setup, IdSink& sink) {
  StartedGeneration started(model, setup, sink);
  const SequenceState& state = started.state;
  Generation& generation = started.generation;
  generation.run();
  GenerationOutcome outcome;
  outcome.ids = generation.tokens();
  outcome.finish = *generation.finish();
  outcome.statistics = generation.statistics();
  outcome.state_length = state.length();
  if (state.history()) outcome.transitions = state.history()->base() + state.history()->transitions();
  outcome.row_hashes = sink.row_hashes;
  return outcome;
}

}  // namespace mererun::testing
