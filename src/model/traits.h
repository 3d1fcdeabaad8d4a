#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/manifest.h"

namespace mererun {

/// Whether a model drafts when nothing is set.
enum class MtpDefault { kOn, kOptIn };

/// What is fixed for a model id: policy, not shape. One value is one row of the table in docs/models.md.
struct ModelTraits {
  std::string id = {};
  Family family = Family::kDense;
  std::string weights = {};   // for people: "Q4 g64", "BF16"
  int bits = 0;               // of most matrices; 0: unquantised, or not fixed by the id
  int group = 0;              // 0 with bits == 0
  int layers = 0;             // L that config.json must state; 0: any
  int hidden = 0;             // H that config.json must state; 0: any
  int experts = 0;            // E that config.json must state; 0: any
  int experts_per_token = 0;  // Ea that config.json must state; 0: any
  MtpDefault mtp = MtpDefault::kOptIn;
  int prompt_threshold = 0;  // shortest prompt that drafts unasked, in tokens
  int width = 4;             // verify width W unless set
  int width_cap = 16;        // largest W that can be set
  int certified_width = 9;   // widths 1..this are proven
  int context = 16384;       // positions, unless set
  bool thinking = false;
  bool bundled = false;
  std::string repository = {};  // where the files come from; empty: see docs/models.md

  bool is_moe() const { return family != Family::kDense; }
};

/// All known runnable ids, in table order.
std::span<const ModelTraits> known_models();
/// The row of an id, or null.
const ModelTraits* find_traits(std::string_view id);
/// The row for a folder that has no known id: "local:<folder name>", its numbers from the family.
ModelTraits local_traits(std::string_view folder_name, Family family);
/// The folder that holds only a draft head for the Ornith ids; it can't be run.
inline constexpr std::string_view kOrnithHeadId = "text-agent-ornith-35b-mtp";

/// Up to `count` known ids closest to a mistyped one, nearest first.
std::vector<std::string> nearest_ids(std::string_view id, int count);

}  // namespace mererun
