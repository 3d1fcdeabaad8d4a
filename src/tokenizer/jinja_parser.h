#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_lexer.h"

namespace mererun::jinja {

/// Parses a template. Errors: kCorruptData "<name>:<line>: ..." for a syntax error, kUnsupported for a tag
/// that is not served, such as include.
std::unique_ptr<const Program> parse_program(std::string_view source, const std::string& name);

/// Recursive descent over the tokens of one template; used once. Statements are in jinja_parser.cc,
/// expressions in jinja_expression_parser.cc. The grammar and its precedences are Jinja2's.
class Parser {
 public:
  Parser(std::vector<Token> tokens, Program& program) : tokens_(std::move(tokens)), program_(program) {}

  void parse() { program_.body = parse_body({}); }

 private:
  // Token access.
  const Token& peek(std::size_t ahead = 0) const;
  const Token& next();
  bool is_operator(std::string_view text, std::size_t ahead = 0) const;
  bool is_name(std::string_view text, std::size_t ahead = 0) const;
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  std::string expect_name();
  void expect_block_end();
  [[noreturn]] void error(const std::string& message) const;
  [[noreturn]] void error_expected(std::string_view expected) const;
  int intern(const std::string& name);
  std::shared_ptr<const Text> shared_text(std::string text) const;

  // Statements.
  Body parse_body(std::initializer_list<std::string_view> end_names);
  Body parse_block(std::initializer_list<std::string_view> end_names);
  StatementPtr parse_statement();
  StatementPtr parse_set();
  StatementPtr parse_if();
  StatementPtr parse_for();
  StatementPtr parse_macro();
  StatementPtr parse_call();
  StatementPtr parse_filter_block();
  StatementPtr parse_with();
  StatementPtr parse_scope(std::string_view end_name, bool is_named);
  StatementPtr parse_loop_control(const std::string& name);
  void parse_signature(Macro& macro);
  void parse_macro_body(Macro& macro, std::string_view end_name);
  StatementPtr make_statement(Statement::Kind kind) const;

  // Expressions.
  enum class Allow { kConditional, kNoConditional };
  ExpressionPtr parse_tuple(Allow allow = Allow::kConditional, std::string_view end_name = {},
                            bool in_parentheses = false);
  ExpressionPtr parse_target(std::string_view end_name, bool allow_namespace);
  ExpressionPtr parse_target_part(bool allow_namespace);
  ExpressionPtr parse_expression(Allow allow = Allow::kConditional);
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr base);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr base);
  ExpressionPtr parse_subscript(ExpressionPtr base);
  ExpressionPtr parse_call_of(ExpressionPtr base);
  ExpressionPtr parse_filter(ExpressionPtr base);
  ExpressionPtr parse_filter_chain();
  ExpressionPtr parse_test(ExpressionPtr base);
  CallArguments parse_arguments();
  ExpressionPtr make(Expression::Kind kind) const;
  ExpressionPtr make_constant(Value value) const;
  template <typename... Operands>
  ExpressionPtr make_with(Expression::Kind kind, int line, Operands... operands) const;
  /// Sets the node's depth; refuses trees that are too deep.
  ExpressionPtr finish(ExpressionPtr expression) const;
  bool at_expression_end(std::string_view end_name) const;

  class Nested;

  std::vector<Token> tokens_;
  Program& program_;
  std::size_t position_ = 0;
  int nesting_ = 0;
  int loop_depth_ = 0;
  std::vector<Macro*> open_macros_;
};

}  // namespace mererun::jinja
