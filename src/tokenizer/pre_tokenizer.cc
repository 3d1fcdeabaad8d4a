#include "tokenizer/pre_tokenizer.h"

namespace mererun {

const std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const std::string& pattern, const std::string& where) {
  if (pattern == kQwenPattern) return make_qwen_pre_tokenizer();
  return make_regex_pre_tokenizer(pattern, where);
}

}  // namespace mererun
