#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/prefix_digest.h"
#include "cache/sealed_file.h"
#include "cache/snapshot.h"

namespace mererun {

/// A whole KV page of a snapshot on the host.
struct PageImage {
  PrefixDigest key{};
  bool is_head = false;
  std::vector<std::byte> bytes;  // empty where nobody asked for them
};

/// A snapshot in host memory, apart from the model and the device it came from. Whole pages are named by the
/// tokens that determine them; the last, partly filled one of each cache belongs to the snapshot.
///
/// Thread-safety: plain data.
struct SnapshotImage {
  std::vector<TokenId> ids;
  SnapshotClass kind = SnapshotClass::kPrompt;
  std::vector<float> logits;
  std::vector<std::byte> recurrent;
  std::vector<std::byte> last_hidden;
  std::vector<PageImage> pages;       // trunk, then head
  std::vector<std::byte> trunk_tail;  // live rows of the last trunk page
  bool has_history = false;           // only whole draft histories are kept
  int evaluated = 0;                  // transitions in the head's cache
  std::vector<std::byte> head_tail;
  std::vector<std::byte> waiting_rows;
  std::vector<TokenId> waiting_tokens;

  std::size_t size_bytes() const;
};

/// The whole pages of a snapshot by key only, trunk, then head. `digests` are of its ids.
std::vector<PageImage> name_pages(const Snapshot& snapshot, const PrefixDigests& digests);

/// Copies a snapshot to the host. `pages` are its own, by key; of those that `is_wanted` marks the bytes too.
/// Called by the thread that owns the Ops.
SnapshotImage take_image(const Snapshot& snapshot, std::vector<PageImage> pages,
                         const std::vector<bool>& is_wanted);

/// The snapshot file of an image: everything but its whole pages. `model` and `head` identify the weights.
class SnapshotFile {
 public:
  /// Returns the file's size. Errors: those of SealedFile::write.
  static std::uint64_t write(const std::filesystem::path& path, const SnapshotImage& image,
                             const std::string& model, const std::string& head);

  struct Content {
    SnapshotImage image;  // pages have keys only
    std::string model, head;
  };
  /// No value for a damaged file, or one whose parts do not fit `geometry`. Errors: kNotFound, kIo.
  static std::optional<Content> read(const std::filesystem::path& path, const StateGeometry& geometry);
  /// Model, head, class and keys without a geometry, for rebuilding an index; sizes are not checked.
  static std::optional<Content> read_any(const std::filesystem::path& path);
};

/// A file of one whole page.
class PageFile {
 public:
  /// Returns the file's size. Errors: those of SealedFile::write.
  static std::uint64_t write(const std::filesystem::path& path, const PageImage& page,
                             const std::string& model);
  struct Content {
    PageImage page;
    std::string model;
  };
  /// No value for a damaged file. Errors: kNotFound, kIo.
  static std::optional<Content> read(const std::filesystem::path& path);
};

/// Where the whole pages of a restored snapshot come from: a page at hand, or bytes to upload.
using PageSource = std::function<KvPageRef(std::size_t index, const PageImage& page)>;

/// Puts a snapshot back onto the device. `image` fits the geometry. Errors: kOutOfMemory and those of
/// `source`.
std::shared_ptr<const Snapshot> restore_image(Ops& ops, const StateGeometry& geometry,
                                              const StatePools& pools, SnapshotImage image,
                                              const PageSource& source);

}  // namespace mererun
