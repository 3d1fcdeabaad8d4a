#include "model/traits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace mererun {

namespace {

constexpr int kLongContext = 262144;

/// Dense Qwen3.8-27B: 64 layers of width 5,120.
ModelTraits q38_dense(std::string id, std::string weights, int bits, MtpDefault mtp, int width_cap) {
  return {.id = std::move(id),
          .family = Family::kDense,
          .weights = std::move(weights),
          .bits = bits,
          .group = bits == 0 ? 0 : 64,
          .layers = 64,
          .hidden = 5120,
          .mtp = mtp,
          .width = 8,
          .width_cap = width_cap,
          .context = kLongContext,
          .thinking = true};
}

/// Ornith 1.5 35B-A3B: 40 layers of width 2,048, 8 of 256 experts.
ModelTraits ornith(std::string id, std::string weights, int bits) {
  return {.id = std::move(id),
          .family = Family::kMoe,
          .weights = std::move(weights),
          .bits = bits,
          .group = bits == 0 ? 0 : 64,
          .layers = 40,
          .hidden = 2048,
          .experts = 256,
          .experts_per_token = 8,
          .mtp = MtpDefault::kOn,
          .context = kLongContext,
          .thinking = true};
}

/// Qwen3.8-Flash-Next: 48 layers of width 2,560, 10 of 512 experts.
ModelTraits flash_next(std::string id, std::string weights, int bits) {
  return {.id = std::move(id),
          .family = Family::kFlashNext,
          .weights = std::move(weights),
          .bits = bits,
          .layers = 48,
          .hidden = 2560,
          .experts = 512,
          .experts_per_token = 10,
          .mtp = MtpDefault::kOn,
          .certified_width = 32,
          .context = kLongContext,
          .thinking = true};
}

std::vector<ModelTraits> make_table() {
  std::vector<ModelTraits> table;
  table.push_back({.id = "demo-dense-4bit",
                   .family = Family::kDense,
                   .weights = "Q4 g64",
                   .bits = 4,
                   .group = 64,
                   .layers = 8,
                   .hidden = 512,
                   .mtp = MtpDefault::kOn,
                   .width = 8,
                   .width_cap = 9,
                   .bundled = true});
  table.push_back({.id = "demo-moe-4bit",
                   .family = Family::kMoe,
                   .weights = "Q4 g64, Q8 gates",
                   .bits = 4,
                   .group = 64,
                   .layers = 8,
                   .hidden = 384,
                   .experts = 32,
                   .experts_per_token = 4,
                   .mtp = MtpDefault::kOn,
                   .bundled = true});
  table.push_back(q38_dense("vision-chat-q38-27b-4bit", "Q4 g64", 4, MtpDefault::kOn, 9));
  table.push_back(q38_dense("vision-chat-q38-27b", "BF16", 0, MtpDefault::kOptIn, 16));
  table.push_back(ornith("text-agent-ornith-35b-mlx-4bit", "Q4 g64", 4));
  table.push_back(ornith("text-agent-ornith-35b-mlx-6bit", "Q6 g64", 6));
  table.push_back(ornith("text-agent-ornith-35b-mlx-8bit", "Q8 g64", 8));
  table.push_back(ornith("text-agent-ornith-35b-mlx", "BF16", 0));
  table.push_back(ornith("vision-chat-ornith-35b", "BF16", 0));
  table.push_back(flash_next("vision-chat-q38-flash-next-3bit-native-ple", "Q3, native table", 3));
  table.push_back(flash_next("vision-chat-q38-flash-next-3bit", "Q3", 3));
  table.push_back(flash_next("vision-chat-q38-flash-next-4bit", "Q4", 4));
  table.push_back(flash_next("vision-chat-q38-flash-next-mixed", "mixed", 0));
  table.push_back({.id = "text-chat-q36-nano",
                   .family = Family::kMoe,
                   .weights = "Q4",
                   .bits = 4,
                   .layers = 40,
                   .hidden = 2048,
                   .experts = 256,
                   .experts_per_token = 8,
                   .mtp = MtpDefault::kOn,
                   .prompt_threshold = 6144});
  table.push_back({.id = "text-agent-ornith-9b",
                   .family = Family::kDense,
                   .weights = "as stored",
                   .mtp = MtpDefault::kOptIn,
                   .thinking = true});
  return table;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const ModelTraits> known_models() {
  static const std::vector<ModelTraits> table = make_table();
  return table;
}

const ModelTraits* find_traits(std::string_view id) {
  for (const ModelTraits& traits : known_models()) {
    if (traits.id == id) return &traits;
  }
  return nullptr;
}

ModelTraits local_traits(std::string_view folder_name, Family family) {
  const bool moe = family != Family::kDense;
  return {.id = fmt::format("local:{}", folder_name),
          .family = family,
          .weights = "as stored",
          .mtp = moe ? MtpDefault::kOn : MtpDefault::kOptIn,
          .prompt_threshold = moe ? 6144 : 0,
          .certified_width = family == Family::kFlashNext ? 32 : 9};
}

std::vector<std::string> nearest_ids(std::string_view id, int count) {
  // An id is short; a longer text can't be a typing error, and the distance costs its length times each id's.
  constexpr std::size_t kLongest = 128;
  id = id.substr(0, kLongest);
  std::vector<std::pair<int, std::string>> ranked;
  for (const ModelTraits& traits : known_models())
    ranked.emplace_back(edit_distance(id, traits.id), traits.id);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> ids;
  for (const auto& [distance, known] : ranked) {
    if (static_cast<int>(ids.size()) < count) ids.push_back(known);
  }
  return ids;
}

}  // namespace mererun
