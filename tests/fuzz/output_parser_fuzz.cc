// Any bytes as the model's output, cut anywhere: the pieces do not depend on the cuts, arguments are JSON
// objects, and nothing throws. The first two bytes choose the options and the chunk size.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/output_parser.h"

namespace {

using mererun::OutputParser;
using mererun::OutputParserOptions;
using mererun::OutputPiece;

std::shared_ptr<const nlohmann::ordered_json> tools() {
  static const auto kTools = std::make_shared<const nlohmann::ordered_json>(nlohmann::ordered_json::parse(R"([
    {"function": {"name": "f", "parameters": {"properties": {
      "s": {"type": "string"}, "i": {"type": ["integer", "null"]}, "n": {"type": "number"},
      "b": {"type": "boolean"}, "o": {"anyOf": [{"type": "object"}, {"type": "array"}]}}}}}])"));
  return kTools;
}

std::string transcript_of(std::string_view text, const OutputParserOptions& options, std::size_t chunk,
                          bool drops_open_call) {
  OutputParser parser(options);
  std::vector<OutputPiece> pieces;
  for (std::size_t at = 0; at < text.size(); at += chunk) parser.feed(text.substr(at, chunk), pieces);
  parser.finish(drops_open_call, pieces);

  std::string transcript;
  auto last = OutputPiece::Kind::kToolCall;
  for (const OutputPiece& piece : pieces) {
    if (piece.kind == OutputPiece::Kind::kToolCall) {
      MERERUN_CHECK(nlohmann::json::parse(piece.arguments).is_object(), "arguments are an object");
      transcript += "\nT" + std::to_string(piece.index) + piece.name + piece.arguments;
    } else {
      if (piece.kind != last) transcript += piece.kind == OutputPiece::Kind::kReasoning ? "\nR" : "\nC";
      transcript += piece.text;
    }
    last = piece.kind;
  }
  return transcript + std::to_string(parser.tool_calls());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const OutputParserOptions options = {.starts_in_reasoning = (data[0] & 1) != 0,
                                       .tools = (data[0] & 2) ? nullptr : tools()};
  const bool drops_open_call = (data[0] & 4) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string whole = transcript_of(text, options, text.size() + 1, drops_open_call);
  MERERUN_CHECK(transcript_of(text, options, 1, drops_open_call) == whole, "byte by byte");
  MERERUN_CHECK(transcript_of(text, options, data[1] % 32U + 1U, drops_open_call) == whole, "in chunks");
  return 0;
}
