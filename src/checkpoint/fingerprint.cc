#include "checkpoint/fingerprint.h"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "base/sha256.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kWindows = 64;
constexpr std::uint64_t kWindowBytes = 4096;

// Every part is preceded by its length, so that no two different lists of parts are the same stream.
void add_number(Sha256& hash, std::uint64_t value) {
  std::byte bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  hash.update(bytes);
}

void add_text(Sha256& hash, std::string_view text) {
  add_number(hash, text.size());
  hash.update(text);
}

void add_sample(Sha256& hash, std::span<const std::byte> data) {
  if (data.size() <= kWindows * kWindowBytes) {
    hash.update(data);
    return;
  }
  const std::uint64_t last_start = data.size() - kWindowBytes;
  const std::uint64_t step = last_start / (kWindows - 1);
  for (std::uint64_t i = 0; i + 1 < kWindows; ++i) hash.update(data.subspan(i * step, kWindowBytes));
  hash.update(data.subspan(last_start, kWindowBytes));
}

void add_small_file(Sha256& hash, const fs::path& folder, std::string_view name) {
  add_text(hash, name);
  std::error_code error;
  if (fs::symlink_status(folder / name, error).type() == fs::file_type::not_found) {
    hash.update("absent");
    return;
  }
  const MappedFile file(folder / name);
  add_number(hash, file.size());
  hash.update(file.bytes());
}

void add_weights(Sha256& hash, const Checkpoint& checkpoint) {
  add_number(hash, checkpoint.files().size());
  for (const SafetensorsFile& file : checkpoint.files()) {
    add_text(hash, file.filename());
    add_number(hash, file.file().size());
    add_text(hash, file.header());
    add_sample(hash, file.data());
  }
}

}  // namespace

std::string fingerprint(const Checkpoint& trunk, const Checkpoint* head) {
  Sha256 hash;
  add_text(hash, "mererun checkpoint fingerprint 1");
  for (const std::string_view name : {"config.json", "tokenizer.json", "tokenizer_config.json",
                                      "chat_template.jinja", "chat_template.json", "mererun.json"}) {
    add_small_file(hash, trunk.path(), name);
  }
  add_weights(hash, trunk);
  add_text(hash, head != nullptr ? "head" : "no head");
  if (head != nullptr) add_weights(hash, *head);
  return hash.finish_hex();
}

}  // namespace mererun
