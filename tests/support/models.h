#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"

namespace mererun::testing {

/// Folder of the repository.
inline std::filesystem::path source_dir() { return MERERUN_SOURCE_DIR; }
/// The committed part of the golden set, unpacked from tests/golden/data.tar.xz.
inline std::filesystem::path golden_dir() { return std::filesystem::path(MERERUN_BINARY_DIR) / "golden"; }
/// Small inputs and what other programs make of them, unpacked from tests/golden/fixtures.tar.xz.
inline std::filesystem::path fixtures_dir() { return std::filesystem::path(MERERUN_BINARY_DIR) / "fixtures"; }
/// The full golden set, where MERERUN_GOLDEN_DIR names it.
std::optional<std::filesystem::path> full_golden_dir();
/// A bundled checkpoint, "demo-dense-4bit" or "demo-moe-4bit".
inline std::filesystem::path bundled(const std::string& id) { return source_dir() / "models" / id; }

/// Where tests compute that name no device: MERERUN_TEST_BACKEND, or else "auto". "cuda" takes the tests of
/// exactness and of the prefix cache to a GPU as they are.
std::string tested_backend();
/// "reference", "cpu" (all cores), "cpu:1", "cpu:2", "cpu:3" (threads); in place of the last four a GPU,
/// where that is tested.
std::unique_ptr<Ops> make_ops(const std::string& backend);
std::unique_ptr<Model> load_model(const std::filesystem::path& folder, const std::string& backend,
                                  ModelLimits limits = {});

/// Copies a view to the host, row after row.
std::vector<float> to_host(Ops& ops, const TensorView& view);

/// Logits of every position, evaluated in passes of at most `chunk` rows from position 0.
std::vector<float> all_logits(Model& model, std::span<const TokenId> ids, int chunk);

/// Every bit of a sequence's caches: KV codes and scales of committed positions, recurrent states, draft
/// history, last hidden row.
std::vector<std::byte> state_bytes(const SequenceState& state);
/// The same without the draft history.
std::vector<std::byte> trunk_bytes(const SequenceState& state);

/// FNV-1a over the bits of f32 values, NaN and -0 in one spelling each.
std::uint64_t hash_bits(std::span<const float> values);

/// n deterministic ids in [0, vocabulary).
std::vector<TokenId> random_ids(int n, int vocabulary, std::uint64_t seed);
/// The same with an end of text at every seventh place, which cuts the context of n-grams.
std::vector<TokenId> random_texts(int n, const ModelConfig& config, std::uint64_t seed);

}  // namespace mererun::testing
