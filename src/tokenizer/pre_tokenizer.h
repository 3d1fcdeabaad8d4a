#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mererun {

/// Cuts text into the pieces inside which BPE may merge: every match of a pattern and every gap between
/// matches.
///
/// Thread-safety: const members are thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  /// Appends the end offset of every piece of `text` (well-formed UTF-8) to `ends`, ascending; the last one
  /// is text.size(). Nothing is appended for an empty text.
  virtual void split(std::string_view text, std::vector<std::size_t>& ends) const = 0;
};

/// The pattern of Qwen3.5 and later.
/// Source: tokenizer.json of the published checkpoints.
extern const std::string_view kQwenPattern;

/// The pre-tokenizer for `pattern`: the scanner when it is kQwenPattern, else the regular expression.
/// `where` names file and key in messages. Errors: as make_regex_pre_tokenizer.
std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const std::string& pattern, const std::string& where);

/// Hand-written scanner for kQwenPattern. Linear: no character is looked at more than a fixed number of
/// times. Letter, mark and number classes are those of libutf8proc; white space is the property White_Space.
std::unique_ptr<const PreTokenizer> make_qwen_pre_tokenizer();

/// Any pattern, through PCRE2 (UTF, UCP, JIT).
///
/// Checkpoints are written for the Oniguruma engine. Constructs that both engines read alike are accepted:
/// literals, classes, groups, lookahead, quantifiers, \p{..}, \d, \r \n \t \f, escaped punctuation, and \s,
/// which is rewritten because PCRE2 counts U+180E as white space and Oniguruma does not.
///
/// Errors: kUnsupported for other constructs, kCorruptData if PCRE2 refuses the pattern. `split` throws
/// kUnsupported when a text takes the engine past its match limit.
std::unique_ptr<const PreTokenizer> make_regex_pre_tokenizer(const std::string& pattern,
                                                             const std::string& where);

}  // namespace mererun
