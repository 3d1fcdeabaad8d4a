#include "tests/support/models.h"

#include <bit>
#include <cstdlib>
#include <cstring>

namespace mererun::testing {

std::optional<std::filesystem::path> full_golden_dir() {
  const char* dir = std::getenv("MERERUN_GOLDEN_DIR");
  if (dir == nullptr || *dir == '\0') return std::nullopt;
  return dir;
}

std::string tested_backend() {
  const char* backend = std::getenv("MERERUN_TEST_BACKEND");
  return backend == nullptr ? "auto" : backend;
}

std::unique_ptr<Ops> make_ops(const std::string& backend) {
  if (backend == "reference") return make_reference_ops();
  if (tested_backend() == "cuda") return make_cuda_ops({});
  CpuOptions options;
  if (const auto colon = backend.find(':'); colon != std::string::npos)
    options.threads = std::stoi(backend.substr(colon + 1));
  return make_cpu_ops(options);
}

std::unique_ptr<Model> load_model(const std::filesystem::path& folder, const std::string& backend,
                                  ModelLimits limits) {
  return Model::load(folder, {}, make_ops(backend), limits);
}

std::vector<float> to_host(Ops& ops, const TensorView& view) {
  std::vector<float> out(static_cast<std::size_t>(view.rows) * static_cast<std::size_t>(view.cols));
  for (int r = 0; r < view.rows; ++r)
    ops.download(out.data() + static_cast<std::size_t>(r) * static_cast<std::size_t>(view.cols),
                 view.row<float>(r), static_cast<std::size_t>(view.cols) * sizeof(float));
  return out;
}

std::vector<float> all_logits(Model& model, std::span<const TokenId> ids, int chunk) {
  SequenceState state = model.new_sequence();
  std::vector<float> out;
  while (state.length() < static_cast<int>(ids.size())) {
    const int first = state.length();
    const int rows = std::min(chunk, static_cast<int>(ids.size()) - first);
    const PassSegment segment{&state, nullptr, 0, rows};
    const TensorView hidden = model.decoder().forward(
        ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)), {&segment, 1});
    for (int r = 0; r < rows; r += model.limits().max_logit_rows) {
      const int n = std::min(model.limits().max_logit_rows, rows - r);
      const std::vector<float> part = to_host(model.ops(), model.decoder().logits(hidden.row_range(r, n)));
      out.insert(out.end(), part.begin(), part.end());
    }
  }
  return out;
}

namespace {

void append(std::vector<std::byte>& out, Ops& ops, const void* data, std::size_t bytes) {
  const std::size_t at = out.size();
  out.resize(at + bytes);
  if (bytes > 0) ops.download(out.data() + at, data, bytes);
}

/// Part of a page that is on the host.
void append(std::vector<std::byte>& out, const std::byte* data, std::size_t bytes) {
  out.insert(out.end(), data, data + bytes);
}

/// The raw index keys of a page's first `rows` positions, and the pooled keys of the blocks that they
/// complete.
void append_index(std::vector<std::byte>& out, const KvLayerView& view, const std::byte* page, int rows) {
  const auto n = static_cast<std::size_t>(rows), blocks = n / kIndexBlockPositions;
  append(out, page + view.index_codes, n * static_cast<std::size_t>(view.index_dim) * sizeof(std::int16_t));
  append(out, page + view.index_scales, n * sizeof(float));
  for (int d = 0; d < view.index_dim; ++d) {
    const std::size_t at = static_cast<std::size_t>(d) * kIndexPageBlocks;
    append(out, page + view.index_pooled + at * sizeof(float), blocks * sizeof(float));
  }
}

/// What a layer keeps of a page's first `rows` positions.
void append_rows(std::vector<std::byte>& out, const KvLayerView& view, const std::byte* page, int rows) {
  const auto n = static_cast<std::size_t>(rows);
  const std::size_t code_row = static_cast<std::size_t>(view.head_dim) * sizeof(std::int16_t);
  for (int h = 0; h < view.kv_heads; ++h) {
    const auto slot = static_cast<std::size_t>(h) * kKvPagePositions;
    append(out, page + view.key_codes + slot * code_row, n * code_row);
    append(out, page + view.value_codes + slot * code_row, n * code_row);
    append(out, page + view.key_scales + slot * sizeof(float), n * sizeof(float));
    append(out, page + view.value_scales + slot * sizeof(float), n * sizeof(float));
  }
  if (view.index_dim > 0) append_index(out, view, page, rows);
}

void append_cache(std::vector<std::byte>& out, Ops& ops, const KvCache& cache) {
  int first = 0;
  std::vector<std::byte> bytes;
  for (const KvPageRef& page : cache.share_pages()) {
    bytes.clear();
    append(bytes, ops, page->bytes.data(), page->bytes.size_bytes());
    const int rows = std::min(cache.length() - first, kKvPagePositions);
    for (int l = 0; l < cache.geometry().layers; ++l) append_rows(out, cache.layer(l), bytes.data(), rows);
    first += rows;
  }
}

}  // namespace

std::vector<std::byte> trunk_bytes(const SequenceState& state) {
  Ops& ops = state.ops();
  std::vector<std::byte> out;
  append_cache(out, ops, state.kv());
  append(out, ops, state.recurrent().bytes().data(), state.recurrent().bytes().size_bytes());
  append(out, ops, state.last_hidden().data,
         static_cast<std::size_t>(state.geometry().hidden) * sizeof(float));
  const auto* context = reinterpret_cast<const std::byte*>(state.context().data());
  out.insert(out.end(), context, context + state.context().size() * sizeof(TokenId));
  return out;
}

std::vector<std::byte> state_bytes(const SequenceState& state) {
  Ops& ops = state.ops();
  std::vector<std::byte> out = trunk_bytes(state);
  if (const auto& history = state.history()) {
    append_cache(out, ops, history->cache());
    const TensorView waiting = history->waiting_hidden();
    append(out, ops, waiting.data,
           static_cast<std::size_t>(waiting.rows) * static_cast<std::size_t>(waiting.cols) * sizeof(float));
    const auto* tokens = reinterpret_cast<const std::byte*>(history->waiting_tokens().data());
    out.insert(out.end(), tokens, tokens + history->waiting_tokens().size() * sizeof(TokenId));
  }
  return out;
}

std::uint64_t hash_bits(std::span<const float> values) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const float value : values) {
    std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) bits = 0x7fc00000u;
    if (bits == 0x80000000u) bits = 0;
    for (int i = 0; i < 4; ++i) hash = (hash ^ ((bits >> (8 * i)) & 0xffu)) * 0x100000001b3ull;
  }
  return hash;
}

std::vector<TokenId> random_ids(int n, int vocabulary, std::uint64_t seed) {
  std::vector<TokenId> ids;
  std::uint64_t x = seed;
  for (int i = 0; i < n; ++i) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    ids.push_back(static_cast<TokenId>((x >> 33) % static_cast<std::uint64_t>(vocabulary)));
  }
  return ids;
}

std::vector<TokenId> random_texts(int n, const ModelConfig& config, std::uint64_t seed) {
  std::vector<TokenId> ids = random_ids(n, config.vocabulary, seed);
  for (std::size_t i = 3; i < ids.size(); i += 7) ids[i] = config.eos_ids.front();
  return ids;
}

}  // namespace mererun::testing
