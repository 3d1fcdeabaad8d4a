// Fuzz target of the chat template interpreter: the input is a template, rendered with one fixed conversation
// under small limits. It parses and renders, or throws Error; what it renders stays within the limits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "tokenizer/chat_template.h"

namespace {

using namespace mererun;
using Json = nlohmann::ordered_json;

const Json& conversation() {
  static const Json variables = Json::parse(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "Grüße 東京 😀"}, {"type": "image"}]},
      {"role": "assistant", "content": "a</think>b", "reasoning_content": null,
       "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "y": [true, 2.5, "z"]}}}]},
      {"role": "tool", "content": "\u0000\u001b 42"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "n": 7, "big": 18446744073709551615, "f": -0.5,
    "s": "Hello World", "padded": "  two words \n", "text": "one\ntwo\n\nthree\n", "uni": "Größe 東京 😀",
    "empty": "", "yes": true, "no": false, "nil": null, "list": [3, 1, 2],
    "words": ["banana", "Apple", "cherry", "apple"], "d": {"b": 1, "a": [1, 2.0, "x"], "c": {"deep": null}},
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}]})");
  return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  RenderLimits limits;
  limits.max_steps = 200'000;
  limits.max_output_bytes = 1 << 20;
  limits.max_string_bytes = 1 << 20;
  limits.max_value_bytes = 16 << 20;
  try {
    ChatTemplate chat_template =
        ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    chat_template.set_limits(limits);
    if (chat_template.render(conversation()).size() > limits.max_output_bytes) std::abort();
  } catch (const Error& error) {
    const bool is_expected = error.code() == ErrorCode::kCorruptData ||
                             error.code() == ErrorCode::kUnsupported ||
                             error.code() == ErrorCode::kInvalidArgument;
    if (!is_expected) std::abort();
  }
  return 0;
}
