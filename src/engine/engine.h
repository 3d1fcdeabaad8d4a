#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "cache/disk_store.h"
#include "cache/prefix_cache.h"
#include "decode/admission.h"
#include "decode/depth_policy.h"
#include "decode/mtp_drafter.h"
#include "engine/backend.h"
#include "engine/calibration.h"
#include "engine/request.h"
#include "model/model.h"
#include "model/resolve.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mererun {

class GrammarVocabulary;
struct QualificationReceipt;

/// How drafting is paid for: measured at start-up, or a fixed ratio.
struct CostChoice {
  bool measured = true;
  double ratio = FixedCost::kDefaultRatio;
};

struct EngineOptions {
  ModelRequest model = {};
  ModelSurroundings surroundings = {};
  std::filesystem::path mtp_root = {};  // empty: search
  bool requires_draft_head = false;     // refuse a model without one before its weights are read
  Backend backend = Backend::kAuto;
  int device = 0;
  int threads = 0;  // 0: physical cores
  CpuIsa cpu_isa = CpuIsa::kAuto;
  std::optional<int> context_limit = {};  // absent: the model's default
  AdmissionProcess process =
      {};  // speculation, thresholds, width, history variable; the engine fills the rest
  CostChoice cost = {};
  int prefill_chunk = 1024;
  std::size_t prefix_cache_bytes = 0;           // 0: off
  std::filesystem::path prefix_cache_dir = {};  // empty: in memory only
  std::int64_t prefix_cache_disk_bytes = std::int64_t{16} << 30;
};

/// A loaded model with everything requests need: tokenizer, template, backend, caches. Requests are made with
/// Run.
///
/// Thread-safety: the accessors of immutable parts are thread-safe; everything that computes belongs to one
/// thread.
class Engine {
 public:
  /// Resolves, validates and loads. Errors: those of resolve_model, make_backend_for, Model::load,
  /// Tokenizer::load, load_chat_template.
  static std::unique_ptr<Engine> load(const EngineOptions& options, const LoadProgress& progress = {});
  ~Engine();

  const ResolvedModel& resolved() const { return resolved_; }
  const ModelTraits& traits() const { return resolved_.traits; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::shared_ptr<const Tokenizer>& shared_tokenizer() const { return tokenizer_; }
  /// Null when the checkpoint has no chat template.
  const ChatTemplate* chat_template() const { return template_ ? &*template_ : nullptr; }
  const std::string& fingerprint() const { return fingerprint_; }
  std::string_view backend_name() { return model_->ops().name(); }
  int context_limit() const { return context_limit_; }
  int prefill_chunk() const { return options_.prefill_chunk; }
  double load_seconds() const { return load_seconds_; }

  Model& model() { return *model_; }
  PrefixCache& prefix_cache() { return prefix_cache_; }
  /// The part of the prefix cache that outlives the process; null without a usable folder.
  DiskStore* disk_store() { return disk_store_; }
  /// Path of the receipt that qualifies this checkpoint on this backend, or "none".
  const std::string& qualification() const { return qualification_; }
  const AdmissionTraits& admission_traits() const { return admission_traits_; }
  const AdmissionProcess& admission_process() const { return process_; }
  /// Replaces what the process says about drafting (benchmark variants).
  void set_process(Speculation speculation, std::optional<int> min_prompt_tokens, std::optional<int> width);

  /// Null without a draft head.
  MtpDrafter* drafter() { return drafter_ ? &*drafter_ : nullptr; }
  /// A log for verifications of up to `width` rows; made once per width asked for and reused.
  VerifyLog& verify_log(int width);
  /// The cost model of a request that may draft up to width - 1 tokens behind the text that `state` holds.
  /// Measures on first use, and again for texts of each further power of two; the state stays as it is. What
  /// requests learn of the times stays for those that follow.
  CostModel cost_model(int width, SequenceState& state);

  /// Renders a conversation. Errors: kUnsupported without a template; the template's own.
  std::string render(const ChatPrompt& prompt, bool add_generation_prompt = true) const;
  /// Ids that end a reply: union of generation_config.json, config.json and the tokenizer.
  const std::vector<TokenId>& eos_ids() const { return eos_ids_; }
  /// The tokens as constraints see them; built on first use (0.1 to 0.3 s for the largest vocabulary).
  /// Thread-safe.
  const std::shared_ptr<const GrammarVocabulary>& grammar_vocabulary() const;

 private:
  Engine(EngineOptions options, ResolvedModel resolved);
  void attach_disk_store();
  void confirm_receipt(const QualificationReceipt& receipt);

  EngineOptions options_;
  ResolvedModel resolved_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::string fingerprint_;
  std::string qualification_ = "none";
  AdmissionTraits admission_traits_;
  AdmissionProcess process_;
  int context_limit_ = 0;
  double load_seconds_ = 0;
  std::vector<TokenId> eos_ids_;
  mutable std::once_flag grammar_vocabulary_once_;
  mutable std::shared_ptr<const GrammarVocabulary> grammar_vocabulary_;
  std::unique_ptr<Model> model_;
  PrefixCache prefix_cache_;         // after the model: snapshots hold its memory
  DiskStore* disk_store_ = nullptr;  // owned by the cache
  std::optional<MtpDrafter> drafter_;
  std::optional<VerifyLog> verify_log_;
  std::optional<CostMeasurement> measured_cost_;            // behind a short text
  std::map<int, std::shared_ptr<RoundTimes>> round_times_;  // by the logarithm of the text's length; short: 0
};

}  // namespace mererun
