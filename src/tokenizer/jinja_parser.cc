#include "tokenizer/jinja_parser.h"

#include <fmt/format.h>

#include "base/error.h"
#include "tokenizer/jinja_parser_nesting.h"

namespace mererun::jinja {

const Token& Parser::peek(std::size_t ahead) const {
  return tokens_[std::min(position_ + ahead, tokens_.size() - 1)];
}

const Token& Parser::next() {
  const Token& token = peek();
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool Parser::is_operator(std::string_view text, std::size_t ahead) const {
  return peek(ahead).kind == TokenKind::kOperator && peek(ahead).text == text;
}

bool Parser::is_name(std::string_view text, std::size_t ahead) const {
  return peek(ahead).kind == TokenKind::kName && peek(ahead).text == text;
}

bool Parser::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  next();
  return true;
}

void Parser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) error_expected(fmt::format("'{}'", text));
}

std::string Parser::expect_name() {
  if (peek().kind != TokenKind::kName) error_expected("a name");
  return next().text;
}

void Parser::expect_block_end() {
  if (peek().kind != TokenKind::kBlockEnd) error_expected("'%}'");
  next();
}

void Parser::error(const std::string& message) const { syntax_error(program_.name, peek().line, message); }

void Parser::error_expected(std::string_view expected) const {
  const Token& token = peek();
  std::string got;
  switch (token.kind) {
    case TokenKind::kData: got = "text"; break;
    case TokenKind::kVariableBegin: got = "'{{'"; break;
    case TokenKind::kVariableEnd: got = "'}}'"; break;
    case TokenKind::kBlockBegin: got = "'{%'"; break;
    case TokenKind::kBlockEnd: got = "'%}'"; break;
    case TokenKind::kString: got = "a string"; break;
    case TokenKind::kEnd: got = "the end of the template"; break;
    default: got = fmt::format("'{}'", token.text); break;
  }
  error(fmt::format("expected {}, got {}", expected, got));
}

int Parser::intern(const std::string& name) {
  const auto [it, is_new] = program_.symbol_of.try_emplace(name, static_cast<int>(program_.symbols.size()));
  if (is_new) program_.symbols.push_back(name);
  return it->second;
}

std::shared_ptr<const Text> Parser::shared_text(std::string text) const {
  return std::make_shared<const Text>(std::move(text), false, nullptr);
}

StatementPtr Parser::make_statement(Statement::Kind kind) const {
  auto statement = std::make_unique<Statement>();
  statement->kind = kind;
  statement->line = peek().line;
  return statement;
}

/// Statements up to a tag named in `end_names`, which stays the current token; up to the end if the list is
/// empty.
Body Parser::parse_body(std::initializer_list<std::string_view> end_names) {
  const Nested nested(*this);
  Body body;
  while (peek().kind != TokenKind::kEnd) {
    if (peek().kind == TokenKind::kData) {
      StatementPtr text = make_statement(Statement::Kind::kText);
      text->text = next().text;
      body.push_back(std::move(text));
    } else if (peek().kind == TokenKind::kVariableBegin) {
      StatementPtr output = make_statement(Statement::Kind::kOutput);
      next();
      output->expression = parse_tuple();
      if (peek().kind != TokenKind::kVariableEnd) error_expected("'}}'");
      next();
      body.push_back(std::move(output));
    } else {
      next();  // '{%': the lexer gives nothing else here
      for (const std::string_view end : end_names) {
        if (is_name(end)) return body;
      }
      body.push_back(parse_statement());
      expect_block_end();
    }
  }
  if (end_names.size() != 0) error_expected(fmt::format("{{% {} %}}", *(end_names.end() - 1)));
  return body;
}

/// The rest of an opening tag, then its body.
Body Parser::parse_block(std::initializer_list<std::string_view> end_names) {
  skip_operator(":");
  expect_block_end();
  return parse_body(end_names);
}

StatementPtr Parser::parse_statement() {
  if (peek().kind != TokenKind::kName) error_expected("the name of a tag");
  const std::string name = peek().text;
  if (name == "set") return parse_set();
  if (name == "if") return parse_if();
  if (name == "for") return parse_for();
  if (name == "macro") return parse_macro();
  if (name == "call") return parse_call();
  if (name == "filter") return parse_filter_block();
  if (name == "with") return parse_with();
  if (name == "generation") return parse_scope("endgeneration", false);
  if (name == "block") return parse_scope("endblock", true);
  if (name == "break" || name == "continue") return parse_loop_control(name);
  if (name == "print") {
    StatementPtr output = make_statement(Statement::Kind::kOutput);
    next();
    output->expression = parse_expression();
    return output;
  }
  for (const std::string_view refused : {"include", "import", "from", "extends", "autoescape"}) {
    if (name == refused) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}:{}: expected a tag that needs no other file and no HTML escaping, got '{}'",
                              program_.name, peek().line, name));
    }
  }
  error(fmt::format("expected a known tag, got '{}'", name));
}

StatementPtr Parser::parse_set() {
  StatementPtr set = make_statement(Statement::Kind::kSet);
  next();
  set->target = parse_target({}, true);
  if (skip_operator("=")) {
    set->expression = parse_tuple();
    return set;
  }
  set->kind = Statement::Kind::kSetBlock;
  if (is_operator("|")) {
    next();
    set->expression = parse_filter_chain();
  }
  set->body = parse_block({"endset"});
  next();
  return set;
}

StatementPtr Parser::parse_if() {
  StatementPtr statement = make_statement(Statement::Kind::kIf);
  next();
  while (true) {
    ExpressionPtr condition = parse_tuple(Allow::kNoConditional);
    statement->branches.emplace_back(std::move(condition), parse_block({"elif", "else", "endif"}));
    const std::string tag = next().text;
    if (tag == "elif") continue;
    if (tag == "else") {
      statement->branches.emplace_back(nullptr, parse_block({"endif"}));
      next();
    }
    return statement;
  }
}

StatementPtr Parser::parse_for() {
  StatementPtr loop = make_statement(Statement::Kind::kFor);
  next();
  loop->target = parse_target("in", false);
  if (!skip_name("in")) error_expected("'in'");
  loop->expression = parse_tuple(Allow::kNoConditional, "recursive");
  if (skip_name("if")) loop->condition = parse_expression();
  if (is_name("recursive")) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}:{}: expected a loop that is not recursive, got 'recursive'", program_.name,
                            peek().line));
  }
  ++loop_depth_;
  loop->body = parse_block({"endfor", "else"});
  --loop_depth_;
  if (next().text == "else") {
    loop->otherwise = parse_block({"endfor"});
    next();
  }
  return loop;
}

void Parser::parse_signature(Macro& macro) {
  expect_operator("(");
  while (!is_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    macro.parameter_names.push_back(expect_name());
    macro.parameters.push_back(intern(macro.parameter_names.back()));
    ExpressionPtr fallback;
    if (skip_operator("=")) {
      fallback = parse_expression();
    } else if (!macro.defaults.empty() && macro.defaults.back() != nullptr) {
      error("expected a default value after a parameter that has one");
    }
    macro.defaults.push_back(std::move(fallback));
  }
  expect_operator(")");
}

void Parser::parse_macro_body(Macro& macro, std::string_view end_name) {
  const int outer_loops = std::exchange(loop_depth_, 0);
  open_macros_.push_back(&macro);
  macro.body = parse_block({end_name});
  open_macros_.pop_back();
  loop_depth_ = outer_loops;
  next();
}

StatementPtr Parser::parse_macro() {
  StatementPtr statement = make_statement(Statement::Kind::kMacro);
  next();
  statement->macro = std::make_unique<Macro>();
  statement->macro->name = expect_name();
  statement->symbol = intern(statement->macro->name);
  parse_signature(*statement->macro);
  parse_macro_body(*statement->macro, "endmacro");
  return statement;
}

StatementPtr Parser::parse_call() {
  StatementPtr statement = make_statement(Statement::Kind::kCall);
  next();
  statement->macro = std::make_unique<Macro>();
  statement->macro->name = "caller";
  if (is_operator("(")) parse_signature(*statement->macro);
  statement->expression = parse_expression();
  if (statement->expression->kind != Expression::Kind::kCall) error("expected a call in a call block");
  parse_macro_body(*statement->macro, "endcall");
  return statement;
}

StatementPtr Parser::parse_filter_block() {
  StatementPtr statement = make_statement(Statement::Kind::kFilterBlock);
  next();
  statement->expression = parse_filter_chain();
  statement->body = parse_block({"endfilter"});
  next();
  return statement;
}

StatementPtr Parser::parse_with() {
  StatementPtr statement = make_statement(Statement::Kind::kWith);
  next();
  while (peek().kind != TokenKind::kBlockEnd) {
    if (!statement->assignments.empty()) expect_operator(",");
    ExpressionPtr target = parse_target({}, false);
    expect_operator("=");
    statement->assignments.emplace_back(std::move(target), parse_expression());
  }
  statement->body = parse_block({"endwith"});
  next();
  return statement;
}

StatementPtr Parser::parse_scope(std::string_view end_name, bool is_named) {
  StatementPtr statement = make_statement(Statement::Kind::kScope);
  next();
  std::string name;
  if (is_named) name = expect_name();
  const int outer_loops = std::exchange(loop_depth_, 0);
  statement->body = parse_block({end_name});
  loop_depth_ = outer_loops;
  next();
  if (is_named) skip_name(name);
  return statement;
}

StatementPtr Parser::parse_loop_control(const std::string& name) {
  if (loop_depth_ == 0) error(fmt::format("expected '{}' inside a loop", name));
  StatementPtr statement =
      make_statement(name == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue);
  next();
  return statement;
}

std::unique_ptr<const Program> parse_program(std::string_view source, const std::string& name) {
  auto program = std::make_unique<Program>();
  program->name = name;
  for (const char* symbol : {"loop", "caller", "varargs", "kwargs"}) {
    program->symbol_of.emplace(symbol, static_cast<int>(program->symbols.size()));
    program->symbols.emplace_back(symbol);
  }
  Parser(tokenize(source, name), *program).parse();
  return program;
}

}  // namespace mererun::jinja
