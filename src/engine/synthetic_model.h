#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decode/mtp_drafter.h"
#include "engine/benchmark_mtp.h"
#include "engine/engine.h"
#include "model/synthetic_weights.h"

namespace mererun {

struct SyntheticOptions {
  std::string geometry;
  std::optional<int> layers;      // absent: the model's own number
  std::uint64_t table_bytes = 0;  // of a Flash-Next geometry's table; 0: 64 MiB
  Backend backend = Backend::kAuto;
  int device = 0;
  int threads = 0;
  CpuIsa cpu_isa = CpuIsa::kAuto;
  int max_rows = 64;  // of a prefill chunk
  std::uint64_t seed = 1;
  const std::atomic<bool>* cancelled = nullptr;  // ends the making of the weights
};

/// A model of random weights: the shapes, and so the cost, of a published one, with nothing downloaded. What
/// it says is noise, so prompts are random ids and drafts are hardly ever right.
///
/// Thread-safety: one thread only.
class SyntheticModel {
 public:
  /// Errors: those of make_synthetic_geometry, make_synthetic_weights and the backend.
  explicit SyntheticModel(const SyntheticOptions& options, const LoadProgress& progress = {});

  /// "synthetic:<geometry>".
  std::string id() const { return "synthetic:" + geometry_.name; }
  /// Hash of everything the weights follow from.
  std::string fingerprint() const;
  const SyntheticGeometry& geometry() const { return geometry_; }
  double load_seconds() const { return load_seconds_; }
  Model& model() { return *model_; }

  /// n ids, always the same for the same stream.
  std::vector<TokenId> random_ids(int n, std::uint64_t stream) const;

 private:
  SyntheticGeometry geometry_;
  std::uint64_t seed_;
  std::shared_ptr<const void> memory_;  // outlives the model
  std::unique_ptr<Model> model_;
  double load_seconds_ = 0;
};

/// Generations of a synthetic model, through the same rounds as an engine's requests.
class SyntheticMtpGenerator final : public MtpGenerator {
 public:
  SyntheticMtpGenerator(SyntheticModel& synthetic, MtpGeneratorOptions options, CostChoice cost)
      : synthetic_(synthetic), options_(options), cost_(cost) {}
  MtpMeasurement generate(MtpVariant variant, const MtpScenario& scenario, int tokens,
                          const std::atomic<bool>& cancelled) override;

 private:
  Admission admit_variant(MtpVariant variant, int prompt_tokens) const;
  CostModel cost_model(VerifyLog& log, int width);
  struct Drafting;
  void prepare(MtpVariant variant, int width, Drafting& drafting);
  void prefill(SequenceState& state, const MtpScenario& scenario, const std::atomic<bool>& cancelled,
               MtpMeasurement& measured);
  void decode(SequenceState& state, const MtpScenario& scenario, int tokens, Drafting& drafting,
              const std::atomic<bool>& cancelled, MtpMeasurement& measured);

  SyntheticModel& synthetic_;
  MtpGeneratorOptions options_;
  CostChoice cost_;
  std::shared_ptr<RoundTimes> times_;
};

/// Tokens of a made-up prompt of so many lines.
constexpr int synthetic_prompt_tokens(int lines) { return lines * 16; }
/// The scenario's prompt for a synthetic model: 16 random ids a line.
std::vector<TokenId> synthetic_prompt(const SyntheticModel& synthetic, int lines);
/// Ids as text, separated by blanks: what reports hash.
std::string ids_text(const std::vector<TokenId>& ids);

}  // namespace mererun
