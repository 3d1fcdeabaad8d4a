#include "grammar/tool_call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "grammar/schema_compiler.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

/// What would end a value for who reads the call.
const std::vector<std::string>& markup() {
  static const std::vector<std::string> kMarkup = {"</parameter>", "</function>", "</tool_call>",
                                                   "<parameter=",  "<function=",  "<tool_call>"};
  return kMarkup;
}

struct Tool {
  std::string name;
  const Json* parameters;  // null: none
  std::string where;
};

const Json* member(const Json& object, const char* key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return at == object.end() ? nullptr : &*at;
}

void check_name(const std::string& name, const std::string& where) {
  const bool is_bad = name.empty() || name.find_first_of("<>\r\n") != std::string::npos ||
                      name.front() == ' ' || name.back() == ' ';
  if (is_bad)
    fail_expected(ErrorCode::kInvalidArgument, where, "a name without <, >, line ends and outer spaces",
                  name);
}

std::vector<Tool> tools_of(const Json& tools, const std::string& wanted) {
  if (!tools.is_array())
    fail_expected(ErrorCode::kInvalidArgument, "tools", "a list of tools", tools.type_name());
  std::vector<Tool> result;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const Json* inner = member(tools[i], "function");
    const Json& tool = inner != nullptr ? *inner : tools[i];
    const Json* name = member(tool, "name");
    const std::string where = fmt::format("tools/{}", i);
    if (name == nullptr || !name->is_string())
      fail_expected(ErrorCode::kInvalidArgument, where, "a tool with a name", "another value");
    const Json* parameters = member(tool, "parameters");
    if (parameters == nullptr) parameters = member(tool, "input_schema");
    if (parameters != nullptr && parameters->is_null()) parameters = nullptr;
    const auto text = name->get<std::string>();
    if (!wanted.empty() && text != wanted) continue;
    check_name(text, where);
    result.push_back({text, parameters, fmt::format("tools/{} (\"{}\"): parameters", i, text)});
  }
  if (result.empty())
    fail_expected(ErrorCode::kInvalidArgument, "tool_choice",
                  wanted.empty() ? "at least one tool" : fmt::format("a tool \"{}\" of the request", wanted),
                  "none");
  return result;
}

/// The parameters that satisfy one reading of the schema.
ExpressionId parameters_of(ExpressionPool& pool, SchemaCompiler& compiler, const ValueRules& rules,
                           const Tool& tool) {
  if ((rules.types & kJsonObject) == 0) return pool.never();
  if (rules.values)
    fail_expected(ErrorCode::kInvalidArgument, tool.where, "an object with properties", "enum or const");
  const std::vector<std::string> names = rules.property_names();
  ExpressionId rest = pool.empty();
  for (std::size_t i = names.size(); i-- > 0;) {
    check_name(names[i], tool.where);
    const RuleId later = pool.add_rule("parameters");
    pool.define(later, rest);
    const ExpressionId here = pool.sequence({pool.bytes("<parameter=" + names[i] + ">\n"),
                                             compiler.argument(rules.property(names[i]), markup()),
                                             pool.bytes("\n</parameter>\n"), pool.rule(later)});
    const bool is_required =
        std::find(rules.required.begin(), rules.required.end(), names[i]) != rules.required.end();
    rest = is_required ? here : pool.choice({here, pool.rule(later)});
  }
  return rest;
}

ExpressionId call_of(ExpressionPool& pool, const Tool& tool) {
  ExpressionId parameters = pool.empty();
  if (tool.parameters != nullptr) {
    SchemaCompiler compiler(pool, *tool.parameters, tool.where, MarkupText::kEscaped);
    std::vector<ExpressionId> options;
    for (const ValueRules& rules : compiler.reader().read(compiler.reader().root()))
      options.push_back(parameters_of(pool, compiler, rules, tool));
    parameters = pool.choice(std::move(options));
    compiler.finish();
  }
  return pool.sequence(
      {pool.bytes("<function=" + tool.name + ">\n"), parameters, pool.bytes("</function>\n")});
}

}  // namespace

RuleId add_tool_calls(ExpressionPool& pool, const Json& tools, const ToolCallOptions& options,
                      const GrammarVocabulary& vocabulary) {
  const auto tag = [&](const std::string& text) {
    return pool.bytes(vocabulary.marker_of(text).value_or(text));
  };
  std::vector<ExpressionId> calls;
  for (const Tool& tool : tools_of(tools, options.name)) calls.push_back(call_of(pool, tool));
  const RuleId call = pool.add_rule("tool call");
  pool.define(call, pool.sequence({tag("<tool_call>"), pool.bytes("\n"), pool.choice(std::move(calls)),
                                   tag("</tool_call>")}));
  if (!options.allows_several) return call;
  const RuleId several = pool.add_rule("tool calls");
  const ExpressionId more = pool.sequence({pool.bytes("\n"), pool.rule(call)});
  pool.define(several, pool.sequence({pool.rule(call), pool.repeat(more, 0, std::nullopt)}));
  return several;
}

}  // namespace mererun
