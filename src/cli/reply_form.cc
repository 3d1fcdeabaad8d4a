#include "cli/reply_form.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "cli/prompt.h"

namespace mererun {
namespace {

/// A schema may be twice as deep as a value: each level of properties is two levels of JSON.
constexpr int kMostSchemaNesting = 2 * kMostNesting;

/// What the compiler refuses is a mistake in the file.
template <typename Check>
void check_in(const std::string& path, Check check) {
  try {
    check();
  } catch (const Error& error) {
    throw Error(error.code(), path + ": " + error.what(), error.hint());
  }
}

}  // namespace

ReplyForm::ReplyForm(const TextChatOptions& options) {
  if (options.grammar_file) {
    std::string gbnf = read_file(*options.grammar_file);
    check_in(*options.grammar_file, [&] { check_grammar(gbnf); });
    compile_ = [gbnf = std::move(gbnf)](const Engine& engine) { return grammar_constraint(engine, gbnf); };
  } else if (options.json_schema_file) {
    const std::string& path = *options.json_schema_file;
    nlohmann::ordered_json schema = parse_json(read_file(path), path, kMostSchemaNesting);
    check_in(path, [&] { check_json_schema(schema); });
    compile_ = [schema = std::move(schema)](const Engine& engine) {
      return json_schema_constraint(engine, schema);
    };
  } else if (options.response_format == "json_object") {
    compile_ = json_object_constraint;
  }
}

std::unique_ptr<TokenConstraint> ReplyForm::constraint(const Engine& engine) {
  if (!compile_) return nullptr;
  if (!compiled_) compiled_ = compile_(engine);
  return compiled_->clone();
}

}  // namespace mererun
