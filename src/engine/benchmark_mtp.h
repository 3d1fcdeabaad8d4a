#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/memory_usage.h"
#include "engine/request.h"

namespace mererun {

/// How one arm of the benchmark drafts.
enum class MtpVariant {
  kBaseline,  // never
  kAdaptive,  // as the model does when nothing is set
  kForced,    // asked for, from a shorter prompt on; the policy still chooses the depth
  kFixed,     // asked for, and always as deep as a round allows
};
/// "baseline", "adaptive", "forced" or "fixed".
std::string_view name_of(MtpVariant variant);
/// What the variant is, as reports print it: "disabled", "adaptive", "forced" or "fixed".
std::string_view policy_of(MtpVariant variant);
/// Inverse of name_of. Errors: kInvalidArgument.
MtpVariant parse_mtp_variant(std::string_view name);

/// One cell of the matrix: a prompt, a length, a temperature.
struct MtpScenario {
  std::optional<int> prompt_repeat;  // lines of the made-up prompt; absent for a given one
  std::string prompt;                // the user's message; of a synthetic model its ids as text
  std::vector<TokenId> prompt_ids;   // of a synthetic model, else empty
  int decode_tokens = 32;            // exact: ends of text are ignored
  double temperature = 0;
};

struct MtpBenchmarkOptions {
  std::vector<MtpVariant> variants;  // in run order
  int repetitions = 1;
  int warmups = 1;
  int warmup_tokens = 16;  // at most the scenario's decode tokens
};

/// What a generator needs besides the scenario and the variant.
struct MtpGeneratorOptions {
  double top_p = 0.9;
  int context_size = 16384;
  int forced_min_prompt_tokens = 1;
  std::optional<int> width = std::nullopt;  // W, drafting variants only
  bool profiles = false;                    // time every phase of every round: no speed evidence
};

/// One generation.
struct MtpMeasurement {
  MtpVariant variant = MtpVariant::kBaseline;
  bool expects_drafts = false;  // what admission said before anything ran
  int prompt_tokens = 0;
  std::vector<TokenId> ids = {};
  GenerateTimings timings = {};
  double load_seconds = 0;
  AccelerationReport acceleration = {};
  std::string output_sha256 = {};  // reasoning, one NUL byte, response; of a synthetic model: the ids as text
  std::optional<MemoryUsage> memory_before = std::nullopt;
  std::optional<MemoryUsage> memory_after = std::nullopt;
  bool peak_is_own = false;  // the peak counts this generation only

  double elapsed_seconds() const { return timings.prefill_seconds + timings.decode_seconds; }
  /// Tokens a second; absent where the time is 0, and of decoding where no pass was timed.
  std::optional<double> prefill_rate() const;
  std::optional<double> decode_rate() const;
  std::optional<double> end_to_end_rate() const;
};

/// All variants of one scenario in one repetition.
struct MtpScenarioResult {
  std::size_t scenario = 0;  // index into the scenarios
  int repetition = 1;        // from 1
  std::vector<MtpMeasurement> variants;

  /// Whether any draft was verified: outputs without one are equal of themselves.
  bool has_drafted() const;
  /// True if all variants gave the same ids, count and hash.
  bool outputs_equal() const;
  /// The variant's rate over the baseline's; absent without a baseline or without rates.
  std::optional<double> decode_speedup(const MtpMeasurement& variant) const;
  std::optional<double> end_to_end_speedup(const MtpMeasurement& variant) const;
};

/// Something that generates as a variant says: a loaded model, or a synthetic one. Each call is a generation
/// of its own, with its own sequence, draft history and depth policy, and no prefix cache.
class MtpGenerator {
 public:
  virtual ~MtpGenerator() = default;
  /// Exactly `tokens` tokens. Errors: kCancelled once `cancelled` is set; those of the model.
  virtual MtpMeasurement generate(MtpVariant variant, const MtpScenario& scenario, int tokens,
                                  const std::atomic<bool>& cancelled) = 0;
};

/// The requests of a loaded engine. Every variant first clears what the process says about drafting, then
/// sets its own; the engine must have been loaded with its draft head.
class EngineMtpGenerator final : public MtpGenerator {
 public:
  EngineMtpGenerator(Engine& engine, MtpGeneratorOptions options) : engine_(engine), options_(options) {}
  MtpMeasurement generate(MtpVariant variant, const MtpScenario& scenario, int tokens,
                          const std::atomic<bool>& cancelled) override;

 private:
  Engine& engine_;
  MtpGeneratorOptions options_;
};

/// How a request of the variant is admitted: speculation, the shortest prompt, the width.
AdmissionProcess variant_process(AdmissionProcess process, MtpVariant variant,
                                 const MtpGeneratorOptions& options);

/// Runs every scenario, repetition by repetition: each variant in the given order warms up and is measured at
/// once, so that the variants of one repetition stand beside each other in time.
///
/// `on_result` (may be empty) sees each finished scenario. Errors: those of the generator.
std::vector<MtpScenarioResult> run_mtp_benchmark(
    MtpGenerator& generator, const std::vector<MtpScenario>& scenarios, const MtpBenchmarkOptions& options,
    const std::atomic<bool>& cancelled, const std::function<void(const MtpScenarioResult&)>& on_result = {});

}  // namespace mererun
