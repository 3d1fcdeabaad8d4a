#include "tests/engine/parsed_output.h"

#include <memory>
#include <nlohmann/json.hpp>

namespace mererun::testing {
namespace {

std::shared_ptr<const nlohmann::ordered_json> tools() {
  static const auto kTools = std::make_shared<const nlohmann::ordered_json>(nlohmann::ordered_json::parse(R"([
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
    {"name": "write", "input_schema": {"type": "object", "properties": {
      "path": {"type": "string"}, "content": {"type": "string"}}}},
    {"type": "function", "function": {"name": "typed", "parameters": {"type": "object",
      "$defs": {"Level": {"enum": ["low", "high"]}, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}]}},
      "properties": {
        "string": {"type": "string"}, "integer": {"type": "integer"}, "number": {"type": "number"},
        "boolean": {"type": "boolean"}, "object": {"type": "object"}, "array": {"type": "array"},
        "null": {"type": "null"}, "int64": {"type": "int64"}, "free": {}, "loop": {"$ref": "#/$defs/Loop"},
        "optional": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "optional_string": {"type": ["string", "null"]},
        "union": {"type": ["integer", "boolean", "string"]},
        "one_of": {"oneOf": [{"type": "array", "items": {}}, {"type": "number"}]},
        "level": {"$ref": "#/$defs/Level"},
        "digits": {"type": ["integer", "string"], "enum": ["1", 2]},
        "nullable": {"type": "number", "nullable": true},
        "shape": {"properties": {"w": {}}}, "items": {"items": {"type": "integer"}}}}}},
    "not a tool", {"function": 3}, {"name": 4}
  ])"));
  return kTools;
}

}  // namespace

OutputParserOptions with_tools() { return {.starts_in_reasoning = false, .tools = tools()}; }
OutputParserOptions with_tools_and_reasoning() { return {.starts_in_reasoning = true, .tools = tools()}; }
OutputParserOptions plain() { return {}; }
OutputParserOptions plain_reasoning() { return {.starts_in_reasoning = true, .tools = nullptr}; }

std::string ParsedOutput::call(std::size_t i) const {
  return i < calls.size() ? calls[i].name + calls[i].arguments : "none";
}

ParsedOutput parse_cut(std::string_view text, const OutputParserOptions& options,
                       const std::vector<std::size_t>& cuts, bool drops_open_call) {
  OutputParser parser(options);
  std::vector<OutputPiece> pieces;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    parser.feed(text.substr(begin, cut - begin), pieces);
    begin = cut;
  }
  parser.feed(text.substr(begin), pieces);
  parser.finish(drops_open_call, pieces);

  ParsedOutput output;
  auto last = OutputPiece::Kind::kToolCall;
  for (const OutputPiece& piece : pieces) {
    const bool starts_run = piece.kind != last || piece.kind == OutputPiece::Kind::kToolCall;
    last = piece.kind;
    switch (piece.kind) {
      case OutputPiece::Kind::kReasoning:
        output.reasoning += piece.text;
        output.transcript += (starts_run ? "\nR:" : "") + piece.text;
        break;
      case OutputPiece::Kind::kContent:
        output.content += piece.text;
        output.transcript += (starts_run ? "\nC:" : "") + piece.text;
        break;
      case OutputPiece::Kind::kToolCall:
        output.transcript += "\nT" + std::to_string(piece.index) + ":" + piece.name + piece.arguments;
        output.calls.push_back(piece);
        break;
    }
  }
  output.transcript += "\n#" + std::to_string(parser.tool_calls());
  return output;
}

ParsedOutput parse_whole(std::string_view text, const OutputParserOptions& options, bool drops_open_call) {
  return parse_cut(text, options, {}, drops_open_call);
}

}  // namespace mererun::testing
