#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace mererun::jinja {

enum class TokenKind {
  kData,           // text between tags, white space control already applied
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // escapes already resolved
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;
  Integer integer = 0;
  double number = 0;
};

/// Throws Error kCorruptData "<name>:<line>: <message>".
[[noreturn]] void syntax_error(const std::string& name, int line, const std::string& message);

/// Splits a template into tokens, with trim_blocks and lstrip_blocks on, comments and raw blocks resolved,
/// line ends normalised and one trailing newline dropped, as chat templates are read. Ends with a kEnd token.
/// Errors: kCorruptData for an unclosed tag, an unknown character, unbalanced brackets.
/// Source: Jinja2 3.1, "Whitespace Control" of the template designer documentation; environment of
/// transformers.
std::vector<Token> tokenize(std::string_view source, const std::string& name);

}  // namespace mererun::jinja
