#include "checkpoint/tensor_names.h"

#include <fmt/format.h>

namespace mererun {
namespace {

// Longest first, so that no shorter prefix leaves half of a longer one behind.
constexpr std::string_view kPrefixes[] = {"model.language_model.", "language_model.model.", "language_model.",
                                          "model."};
constexpr std::string_view kVisionPrefixes[] = {"visual.", "vision_tower.", "vision_model."};

std::string_view without_prefix(std::string_view name) {
  for (const std::string_view prefix : kPrefixes) {
    if (name.size() > prefix.size() && name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

}  // namespace

bool is_vision_name(std::string_view name) {
  const std::string_view rest = without_prefix(name);
  for (const std::string_view prefix : kVisionPrefixes) {
    if (rest.starts_with(prefix)) return true;
  }
  return false;
}

std::string_view canonical_name(std::string_view name) {
  if (is_vision_name(name)) return name;
  const std::string_view rest = without_prefix(name);
  constexpr std::string_view kHead = "mtp.";
  return rest.starts_with("mtp.draft_lm_head.") ? rest.substr(kHead.size()) : rest;
}

std::string quote(std::string_view text) {
  constexpr std::size_t kMaxBytes = 160;
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  out += text.size() > kMaxBytes ? "\"..." : "\"";
  return out;
}

}  // namespace mererun
