#include "cache/snapshot_image.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/build_info.h"
#include "base/error.h"

namespace mererun {
namespace {

enum Section : std::uint32_t {
  kMeta = 1,
  kModel,
  kHead,
  kIds,
  kLogits,
  kRecurrent,
  kLastHidden,
  kTrunkTail,
  kHeadTail,
  kWaitingRows,
  kWaitingTokens,
  kTrunkKeys,
  kHeadKeys,
  kPageBytes,
};

/// Fixed part of a snapshot file.
struct Meta {
  std::uint32_t format = 1;
  std::int32_t contract = kNumericContractVersion;
  std::int32_t kind = 0;
  std::int32_t length = 0;
  std::int32_t has_history = 0;
  std::int32_t evaluated = 0;
};

/// Bytes of a page.
struct ByteRange {
  std::size_t offset, bytes;
};

/// The first `rows` rows of every array of a page, in the order in which they are packed: keys, values, their
/// scales, index keys, and the pooled index keys of complete blocks.
std::vector<ByteRange> live_ranges(const KvGeometry& g, int rows) {
  const auto live = static_cast<std::size_t>(rows);
  std::vector<ByteRange> ranges;
  for (int l = 0; l < g.layers; ++l) {
    const KvLayerView at = g.layer(l);
    const auto add_heads = [&](std::size_t array, std::size_t row_bytes) {
      for (int h = 0; h < g.kv_heads; ++h, array += row_bytes * kKvPagePositions)
        ranges.push_back({array, row_bytes * live});
    };
    const std::size_t code_row = static_cast<std::size_t>(g.head_dim) * sizeof(std::int16_t);
    add_heads(at.key_codes, code_row);
    add_heads(at.value_codes, code_row);
    add_heads(at.key_scales, sizeof(float));
    add_heads(at.value_scales, sizeof(float));
    if (g.index_dim == 0) continue;
    ranges.push_back({at.index_codes, live * static_cast<std::size_t>(g.index_dim) * sizeof(std::int16_t)});
    ranges.push_back({at.index_scales, live * sizeof(float)});
    for (int d = 0; d < g.index_dim; ++d)
      ranges.push_back({at.index_pooled + static_cast<std::size_t>(d) * kIndexPageBlocks * sizeof(float),
                        live / kIndexBlockPositions * sizeof(float)});
  }
  return ranges;
}

std::size_t packed_bytes(const KvGeometry& g, int rows) {
  std::size_t bytes = 0;
  for (const ByteRange& range : live_ranges(g, rows)) bytes += range.bytes;
  return bytes;
}

std::vector<std::byte> download(Ops& ops, const void* data, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  if (bytes > 0) ops.download(out.data(), data, bytes);
  return out;
}

/// Rows of the last page that is not whole.
std::vector<std::byte> download_tail(Ops& ops, const KvCache& cache) {
  const int rows = cache.length() % kKvPagePositions;
  if (rows == 0) return {};
  const std::vector<std::byte> page =
      download(ops, cache.share_pages().back()->bytes.data(), cache.geometry().page_bytes());
  std::vector<std::byte> packed;
  packed.reserve(packed_bytes(cache.geometry(), rows));
  for (const ByteRange& range : live_ranges(cache.geometry(), rows)) {
    const auto live = std::span(page).subspan(range.offset, range.bytes);
    packed.insert(packed.end(), live.begin(), live.end());
  }
  return packed;
}

int whole_pages(const KvCache& cache) { return cache.length() / kKvPagePositions; }

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::vector<std::byte> copy_of(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

template <typename T>
std::optional<std::vector<T>> values_of(std::span<const std::byte> bytes) {
  if (bytes.size() % sizeof(T) != 0) return std::nullopt;
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

/// What a snapshot file's sections refer to; lives as long as they do.
struct Sections {
  Meta meta;
  std::vector<PrefixDigest> trunk_keys, head_keys;
  std::vector<FileSection> list;

  Sections(const SnapshotImage& image, const std::string& model, const std::string& head) {
    meta.kind = static_cast<int>(image.kind);
    meta.length = static_cast<int>(image.ids.size());
    meta.has_history = image.has_history ? 1 : 0;
    meta.evaluated = image.evaluated;
    for (const PageImage& page : image.pages) (page.is_head ? head_keys : trunk_keys).push_back(page.key);
    list = {{kMeta, std::as_bytes(std::span(&meta, 1))},
            {kModel, bytes_of(model)},
            {kHead, bytes_of(head)},
            {kIds, std::as_bytes(std::span(image.ids))},
            {kLogits, std::as_bytes(std::span(image.logits))},
            {kRecurrent, image.recurrent},
            {kLastHidden, image.last_hidden},
            {kTrunkTail, image.trunk_tail},
            {kHeadTail, image.head_tail},
            {kWaitingRows, image.waiting_rows},
            {kWaitingTokens, std::as_bytes(std::span(image.waiting_tokens))},
            {kTrunkKeys, std::as_bytes(std::span(trunk_keys))},
            {kHeadKeys, std::as_bytes(std::span(head_keys))}};
  }
};

bool fits(const SnapshotImage& image, const StateGeometry& g) {
  const int length = static_cast<int>(image.ids.size());
  const KvGeometry trunk = trunk_kv_geometry(g);
  const KvGeometry head = head_kv_geometry(g);
  const std::size_t row = static_cast<std::size_t>(g.hidden) * sizeof(float);
  const auto trunk_pages = static_cast<std::size_t>(length / kKvPagePositions);
  const auto head_pages = static_cast<std::size_t>(image.evaluated / kKvPagePositions);
  const auto of_head = static_cast<std::size_t>(std::count_if(
      image.pages.begin(), image.pages.end(), [](const PageImage& page) { return page.is_head; }));
  if (length < 1 || image.evaluated < 0 || of_head != head_pages ||
      image.pages.size() != trunk_pages + head_pages)
    return false;
  if (image.recurrent.size() != RecurrentState::size_bytes(g) || image.last_hidden.size() != row)
    return false;
  if (image.trunk_tail.size() != packed_bytes(trunk, length % kKvPagePositions)) return false;
  if (image.head_tail.size() != packed_bytes(head, image.evaluated % kKvPagePositions)) return false;
  if (image.waiting_rows.size() != row * image.waiting_tokens.size()) return false;
  const int transitions = image.evaluated + static_cast<int>(image.waiting_tokens.size());
  return transitions == (image.has_history ? length - 1 : 0);
}

/// The whole pages of `image` that belong to one cache, with the tail as its last page.
std::vector<KvPageRef> restore_pages(Ops& ops, KvPagePool& pool, const SnapshotImage& image, bool is_head,
                                     std::span<const std::byte> tail, int rows, const PageSource& source) {
  std::vector<KvPageRef> pages;
  for (const PageImage& page : image.pages)
    if (page.is_head == is_head) pages.push_back(source(pages.size(), page));
  if (rows == 0) return pages;
  std::vector<std::byte> bytes(pool.geometry().page_bytes());
  for (const ByteRange& range : live_ranges(pool.geometry(), rows)) {
    std::copy_n(tail.begin(), range.bytes, bytes.begin() + static_cast<std::ptrdiff_t>(range.offset));
    tail = tail.subspan(range.bytes);
  }
  pages.push_back(pool.acquire());
  ops.upload(pages.back()->bytes.data(), bytes.data(), bytes.size());
  return pages;
}

}  // namespace

std::size_t SnapshotImage::size_bytes() const {
  std::size_t bytes = (ids.size() + waiting_tokens.size()) * sizeof(TokenId) + logits.size() * sizeof(float) +
                      recurrent.size() + last_hidden.size() + trunk_tail.size() + head_tail.size() +
                      waiting_rows.size();
  for (const PageImage& page : pages) bytes += page.bytes.size();
  return bytes;
}

std::vector<PageImage> name_pages(const Snapshot& snapshot, const PrefixDigests& digests) {
  const SequenceState& state = snapshot.state();
  std::vector<PageImage> pages;
  for (int i = 0; i < whole_pages(state.kv()); ++i)
    pages.push_back({.key = digests.trunk_page(i), .is_head = false, .bytes = {}});
  if (!snapshot.has_whole_history()) return pages;
  for (int i = 0; i < whole_pages(state.history()->cache()); ++i)
    pages.push_back({.key = digests.head_page(i), .is_head = true, .bytes = {}});
  return pages;
}

SnapshotImage take_image(const Snapshot& snapshot, std::vector<PageImage> pages,
                         const std::vector<bool>& is_wanted) {
  const SequenceState& state = snapshot.state();
  Ops& ops = state.ops();
  SnapshotImage image;
  image.pages = std::move(pages);
  const std::vector<KvPageRef> trunk = state.kv().share_pages();
  const auto of_trunk = static_cast<std::size_t>(whole_pages(state.kv()));
  const std::vector<KvPageRef> head =
      snapshot.has_whole_history() ? state.history()->cache().share_pages() : std::vector<KvPageRef>{};
  for (std::size_t i = 0; i < image.pages.size(); ++i) {
    if (!is_wanted[i]) continue;
    const KvPage& page = i < of_trunk ? *trunk[i] : *head[i - of_trunk];
    image.pages[i].bytes = download(ops, page.bytes.data(), page.bytes.size_bytes());
  }
  image.ids.assign(snapshot.ids().begin(), snapshot.ids().end());
  image.kind = snapshot.kind();
  image.logits.assign(snapshot.logits().begin(), snapshot.logits().end());
  image.recurrent = download(ops, state.recurrent().bytes().data(), state.recurrent().bytes().size_bytes());
  const std::size_t row = static_cast<std::size_t>(state.geometry().hidden) * sizeof(float);
  image.last_hidden = download(ops, state.last_hidden().data, row);
  image.trunk_tail = download_tail(ops, state.kv());
  if (!snapshot.has_whole_history()) return image;
  const DraftHistory& history = *state.history();
  image.has_history = true;
  image.evaluated = history.evaluated();
  image.head_tail = download_tail(ops, history.cache());
  image.waiting_tokens = history.waiting_tokens();
  image.waiting_rows = download(ops, history.waiting_hidden().data, row * image.waiting_tokens.size());
  return image;
}

std::uint64_t SnapshotFile::write(const std::filesystem::path& path, const SnapshotImage& image,
                                  const std::string& model, const std::string& head) {
  const Sections sections(image, model, head);
  return SealedFile::write(path, sections.list);
}

std::optional<SnapshotFile::Content> SnapshotFile::read_any(const std::filesystem::path& path) {
  const std::optional<SealedFile> file = SealedFile::read(path);
  if (!file || file->section(kMeta).size() != sizeof(Meta)) return std::nullopt;
  Meta meta;
  std::memcpy(&meta, file->section(kMeta).data(), sizeof(Meta));
  if (meta.format != Meta{}.format || meta.contract != Meta{}.contract) return std::nullopt;
  if (meta.kind < 0 || meta.kind > static_cast<int>(SnapshotClass::kInterval)) return std::nullopt;
  Content content;
  content.model = text_of(file->section(kModel));
  content.head = text_of(file->section(kHead));
  SnapshotImage& image = content.image;
  auto ids = values_of<TokenId>(file->section(kIds));
  auto logits = values_of<float>(file->section(kLogits));
  auto tokens = values_of<TokenId>(file->section(kWaitingTokens));
  const auto trunk_keys = values_of<PrefixDigest>(file->section(kTrunkKeys));
  const auto head_keys = values_of<PrefixDigest>(file->section(kHeadKeys));
  if (!ids || !logits || !tokens || !trunk_keys || !head_keys) return std::nullopt;
  if (static_cast<int>(ids->size()) != meta.length) return std::nullopt;
  image.ids = std::move(*ids);
  image.kind = static_cast<SnapshotClass>(meta.kind);
  image.logits = std::move(*logits);
  image.waiting_tokens = std::move(*tokens);
  image.recurrent = copy_of(file->section(kRecurrent));
  image.last_hidden = copy_of(file->section(kLastHidden));
  image.trunk_tail = copy_of(file->section(kTrunkTail));
  image.head_tail = copy_of(file->section(kHeadTail));
  image.waiting_rows = copy_of(file->section(kWaitingRows));
  image.has_history = meta.has_history != 0;
  image.evaluated = meta.evaluated;
  for (const PrefixDigest& key : *trunk_keys)
    image.pages.push_back({.key = key, .is_head = false, .bytes = {}});
  for (const PrefixDigest& key : *head_keys)
    image.pages.push_back({.key = key, .is_head = true, .bytes = {}});
  return content;
}

std::optional<SnapshotFile::Content> SnapshotFile::read(const std::filesystem::path& path,
                                                        const StateGeometry& geometry) {
  std::optional<Content> content = read_any(path);
  if (!content || !fits(content->image, geometry)) return std::nullopt;
  // The names of its pages follow from its tokens.
  const PrefixDigests digests(content->image.ids);
  int trunk = 0;
  int head = 0;
  for (const PageImage& page : content->image.pages)
    if (page.key != (page.is_head ? digests.head_page(head++) : digests.trunk_page(trunk++)))
      return std::nullopt;
  return content;
}

std::uint64_t PageFile::write(const std::filesystem::path& path, const PageImage& page,
                              const std::string& model) {
  const FileSection sections[] = {{page.is_head ? kHeadKeys : kTrunkKeys, std::as_bytes(std::span(page.key))},
                                  {kModel, bytes_of(model)},
                                  {kPageBytes, page.bytes}};
  return SealedFile::write(path, sections);
}

std::optional<PageFile::Content> PageFile::read(const std::filesystem::path& path) {
  const std::optional<SealedFile> file = SealedFile::read(path);
  if (!file) return std::nullopt;
  Content content;
  content.page.is_head = file->section(kTrunkKeys).empty();
  const auto key = file->section(content.page.is_head ? kHeadKeys : kTrunkKeys);
  if (key.size() != content.page.key.size()) return std::nullopt;
  std::memcpy(content.page.key.data(), key.data(), key.size());
  content.page.bytes = copy_of(file->section(kPageBytes));
  content.model = text_of(file->section(kModel));
  return content;
}

std::shared_ptr<const Snapshot> restore_image(Ops& ops, const StateGeometry& geometry,
                                              const StatePools& pools, SnapshotImage image,
                                              const PageSource& source) {
  const int length = static_cast<int>(image.ids.size());
  KvCache kv(
      pools.trunk,
      restore_pages(ops, *pools.trunk, image, false, image.trunk_tail, length % kKvPagePositions, source),
      length);
  std::optional<DraftHistory> history;
  if (geometry.draft_head && image.has_history) {
    KvCache cache(pools.head,
                  restore_pages(ops, *pools.head, image, true, image.head_tail,
                                image.evaluated % kKvPagePositions, source),
                  image.evaluated);
    Buffer rows;
    if (!image.waiting_rows.empty()) {
      rows = ops.allocate(image.waiting_rows.size());
      ops.upload(rows.data(), image.waiting_rows.data(), image.waiting_rows.size());
    }
    const TensorView waiting =
        make_view(rows.data(), DType::kF32, static_cast<int>(image.waiting_tokens.size()), geometry.hidden);
    history = DraftHistory::restore(ops, std::move(cache), 0, waiting, image.waiting_tokens);
    ops.synchronize();  // `rows` has been copied before it goes
  }
  SequenceState state = SequenceState::assemble(ops, geometry, pools, std::move(kv), image.ids,
                                                image.recurrent, image.last_hidden, std::move(history));
  return Snapshot::adopt(std::move(state), std::move(image.ids), std::move(image.logits), image.kind);
}

}  // namespace mererun
