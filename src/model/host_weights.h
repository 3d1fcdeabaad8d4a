#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checkpoint/table_reader.h"
#include "model/config.h"
#include "model/draft_vocabulary.h"
#include "model/norm_convention.h"
#include "tensor/linear_source.h"

namespace mererun {

class Checkpoint;
struct HostFlashHead;
struct HostFlashLayer;
struct HostHyperConnection;
struct TensorEntry;
enum class HeadNormSpan : int;

// The weights of a model as its folder holds them, bound to named fields and validated: after loading, no
// name is looked up and a wrong shape cannot exist. Matrices are borrowed from the mapping in the
// checkpoint's own precision; vectors are f32 and final (norm offsets applied). Letters: see ModelConfig.

/// Gated DeltaNet mixer.
struct HostDeltaNet {
  LinearSource in_proj_qkv;    // [C, H]: rows q Nk*Dk, k Nk*Dk, v Nv*Dv
  LinearSource in_proj_z;      // [Nv*Dv, H]
  LinearSource in_proj_a;      // [Nv, H]
  LinearSource in_proj_b;      // [Nv, H]
  LinearSource out_proj;       // [H, Nv*Dv]
  std::vector<float> conv;     // [C, K], oldest tap first
  std::vector<float> a_log;    // [Nv]
  std::vector<float> dt_bias;  // [Nv]
  std::vector<float> norm;     // [Dv], of the gated output norm
};

/// Full-attention mixer.
struct HostAttention {
  LinearSource q_proj;        // [Hq * 2 * Dh, H]: per head Dh query rows, then Dh gate rows
  LinearSource k_proj;        // [Hkv * Dh, H]
  LinearSource v_proj;        // [Hkv * Dh, H]
  LinearSource o_proj;        // [H, Hq * Dh]
  std::vector<float> q_norm;  // [Dh]
  std::vector<float> k_norm;  // [Dh]
};

/// SwiGLU feed-forward of width F: down(silu(gate x) * up x).
struct HostMlp {
  LinearSource gate;  // [F, H]
  LinearSource up;    // [F, H]
  LinearSource down;  // [H, F]
};

/// Routed experts of width I plus one shared expert behind a scalar gate.
struct HostMoe {
  LinearSource router;       // [E, H]
  LinearSource shared_gate;  // [1, H]
  LinearSource expert_gate;  // E x [I, H]; mind `expert_stride`
  LinearSource expert_up;    // E x [I, H]; mind `expert_stride`
  LinearSource expert_down;  // E x [H, I]
  HostMlp shared;            // of width `shared_intermediate`
};

struct HostLayer {
  std::vector<float> input_norm;  // [H]; empty in Flash-Next
  std::vector<float> post_norm;   // [H]; empty in Flash-Next
  std::variant<HostDeltaNet, HostAttention> mixer;
  std::variant<HostMlp, HostMoe> feed_forward;
  /// Memory behind expert stacks that the file holds per expert or transposed. Empty for every other layout;
  /// may be cleared once the layer is on its device.
  std::vector<std::shared_ptr<const void>> owned;
  std::shared_ptr<HostFlashLayer> flash;  // what only Flash-Next has (flash_host_weights.h), or null

  LayerKind kind() const {
    return std::holds_alternative<HostDeltaNet>(mixer) ? LayerKind::kDeltaNet : LayerKind::kAttention;
  }
};

/// One-layer MTP head: fc([norm(embedding); norm(hidden)]) -> one attention layer -> norm -> the output
/// matrix.
struct HostDraftHead {
  LinearSource fc;  // [H, 2H]: columns 0..H-1 act on the embedding; empty in Flash-Next
  std::vector<float> pre_fc_norm_embedding;  // [H]
  std::vector<float> pre_fc_norm_hidden;     // [H]; Flash-Next: [4H]
  HostLayer layer;                           // mixer is always HostAttention
  std::vector<float> norm;                   // [H]; empty in Flash-Next
  std::shared_ptr<HostFlashHead> flash;      // what only Flash-Next has, or null
  /// Coarse 2-bit output matrix in compact order for the shortlist, [padded_rows, H]; empty without one.
  LinearSource draft_lm_head;
  /// Which ids the head proposes; no value: the whole vocabulary.
  std::optional<DraftVocabulary> vocabulary;
};

/// Where the draft head came from.
enum class HeadPlace { kNone, kMtpRoot, kTargetShards, kSidecarFile, kSidecarFolder, kCompanion };
/// "none", "mtp-root", "target-shards", "sidecar-file", "mtp-folder" or "companion", as reports print it.
std::string_view name_of(HeadPlace place);

/// What loading found and decided. Notes are expected; warnings deserve the user's eye.
struct LoadReport {
  NormConvention trunk_norms = NormConvention::kFinal;
  std::optional<NormConvention> head_norms;
  HeadPlace head_place = HeadPlace::kNone;
  std::filesystem::path head_path;  // folder or file that holds the head; empty without one
  std::int64_t tensors = 0;         // bound tensors, head included
  std::int64_t vision_tensors = 0;  // present and not used
  std::uint64_t mapped_bytes = 0;   // of bound tensors, the n-gram table apart
  std::uint64_t table_bytes = 0;    // of the n-gram table, which stays on disk
  std::uint64_t copied_bytes = 0;   // expert stacks that had to be rebuilt in memory
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// A model's validated weights. Every pointer in a LinearSource stays valid as long as this object (or a
/// copy).
///
/// Thread-safety: immutable after loading; thread-safe.
struct HostWeights {
  ModelConfig config;             // `kinds` and `tied` as the tensors say
  LinearSource embed;             // [V, H]
  LinearSource lm_head;           // [V, H]; the same arrays as `embed` if config.tied
  std::vector<float> final_norm;  // [H]; empty in Flash-Next, which has:
  std::shared_ptr<HostHyperConnection> final_mixer;
  std::vector<HostLayer> layers;  // [L]
  std::optional<HostDraftHead> head;
  LoadReport report;
  std::vector<std::shared_ptr<const Checkpoint>> checkpoints;  // the mappings the sources borrow from
};

struct LoadOptions {
  /// Load it where there is one, refuse a model without one, or leave it alone.
  enum class Head { kLoad, kRequire, kSkip };
  /// Expert stacks that a file holds per expert or transposed are rebuilt in memory; a model that is only
  /// described needs none of that, and its stacks' data must then not be read.
  enum class Experts { kRebuild, kDescribe };
  Head head = Head::kLoad;
  Experts experts = Experts::kRebuild;
  std::filesystem::path mtp_root;                           // --mtp-root; empty: search
  std::vector<std::filesystem::path> companions;            // folders that hold only a head, tried last
  std::optional<NormConvention> norm_convention;            // stated by mererun.json
  std::optional<NormConvention> mtp_norm_convention;        // stated by mererun.json
  std::optional<std::vector<TokenRange>> draft_vocabulary;  // stated by mererun.json
  HeadNormSpan head_norm_span{};  // Flash-Next; stated by mererun.json, default: the full width
  TableOptions table;             // how rows of the n-gram table are read
};

/// Binds and validates every tensor of a checkpoint folder, and of the draft head wherever it is.
///
/// Nothing is converted except small vectors (to f32) and expert stacks stored per expert or transposed,
/// which are rebuilt one layer at a time.
///
/// Errors: kCorruptData listing all problems of one checkpoint together (20, then a count): tensors missing,
///         misshapen, of another dtype, left over, contradicting `quantization` or the norm convention; a
///         head in files of its own is a checkpoint of its own, named by its file or folder; kNotFound if
///         `mtp_root` holds no head, or no place does that is required, before any data is read; and those of
///         load_config and Checkpoint::open.
[[nodiscard]] HostWeights load_host_weights(const std::filesystem::path& folder,
                                            const LoadOptions& options = {});

/// Every problem that load_host_weights would list, in full, those of a head in files of its own behind their
/// path; empty if the folder loads. Other errors are thrown.
[[nodiscard]] std::vector<std::string> list_load_problems(const std::filesystem::path& folder,
                                                          const LoadOptions& options = {});

/// Calls `visit(group, source)` for every matrix, trunk first, layer by layer. The group is the module's name
/// without the layer: "embed_tokens", "self_attn.q_proj", "mlp.experts.gate_proj", and "mtp.self_attn.q_proj"
/// in the head. A tied output matrix is visited once, as "embed_tokens".
void for_each_linear(const HostWeights& weights,
                     const std::function<void(std::string_view group, const LinearSource&)>& visit);
/// The same for the f32 vectors ("self_attn.q_norm.weight", "norm.weight").
void for_each_vector(const HostWeights& weights,
                     const std::function<void(std::string_view group, const std::vector<float>&)>& visit);

/// Tensors of one role and precision, for `model inspect`.
struct TensorGroup {
  std::string name;  // as for_each_linear and for_each_vector name it
  int count = 0;
  DType dtype = DType::kF32;  // U32 for affine matrices; F32 for vectors, as held
  int bits = 0;               // affine matrices
  int group = 0;              // affine matrices
  std::uint64_t bytes = 0;    // scales and biases included
};
/// One entry per role and precision, in the order of the walk, matrices first.
[[nodiscard]] std::vector<TensorGroup> tensor_groups(const HostWeights& weights);

/// What a scan for NaN and infinity came to.
struct ValueScan {
  std::vector<std::string> problems;  // one for every tensor that holds some: its first one and the file
  std::uint64_t tensors = 0;          // scanned to their end or to such a value
  bool is_stopped = false;            // by `progress`
};
/// Scans tensors of mapped files, in parts whose pages are let go: memory stays a part's, whatever a tensor's
/// size. `progress` (may be empty) gets the bytes scanned before each part and the bytes of all; false stops
/// the scan.
[[nodiscard]] ValueScan find_non_finite(
    std::span<const TensorEntry* const> tensors,
    const std::function<bool(std::uint64_t done, std::uint64_t total)>& progress = {});

}  // namespace mererun
