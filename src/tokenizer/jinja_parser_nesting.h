#pragma once

#include "tokenizer/jinja_parser.h"

namespace mererun::jinja {

/// Deeper nesting of tags and brackets than any real template has; keeps the parser's recursion bounded.
class Parser::Nested {
 public:
  explicit Nested(Parser& parser) : parser_(parser) {
    static constexpr int kMaxOpen = 150;
    if (++parser_.nesting_ > kMaxOpen) parser_.error("expected tags and expressions nested less deep");
  }
  ~Nested() { --parser_.nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Parser& parser_;
};

}  // namespace mererun::jinja
