// Templates whose output Jinja2 has given (fixtures/tokenizer/template_cases.json, made by make_template_cases.py), and the
// chat template of the bundled checkpoints (golden/chat-template/cases.json).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "tokenizer/chat_template.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

Json read_json(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return Json::parse(file);
}

TEST(TemplateCases, RenderAsJinja2Does) {
  const Json document = read_json(MERERUN_BINARY_DIR "/fixtures/tokenizer/template_cases.json");
  ASSERT_GT(document["cases"].size(), 200u);
  for (const Json& one : document["cases"]) {
    const std::string source = one["template"];
    std::string rendered;
    std::string error;
    try {
      rendered = ChatTemplate::parse(source, "t").render(document["variables"]);
    } catch (const Error& e) {
      error = e.what();
    }
    if (one.contains("fails")) {
      EXPECT_NE(error, "") << source << "\nrendered: " << rendered;
    } else {
      EXPECT_EQ(error, "") << source;
      EXPECT_EQ(rendered, one["rendered"].get<std::string>()) << source;
    }
  }
}

TEST(ChatTemplateGoldens, BundledTemplateRendersExactly) {
  const ChatTemplate chat_template =
      load_chat_template(std::string(MERERUN_SOURCE_DIR) + "/models/demo-dense-4bit");
  const Json document = read_json(MERERUN_BINARY_DIR "/golden/chat-template/cases.json");
  ASSERT_EQ(document["cases"].size(), 61u);
  int failures = 0;
  for (const Json& one : document["cases"]) {
    ChatInputs inputs;
    inputs.messages = &one["messages"];
    inputs.tools = one.contains("tools") ? &one["tools"] : nullptr;
    inputs.arguments = &one["args"];
    inputs.add_generation_prompt = one["add_generation_prompt"];
    if (!one.contains("error")) {
      EXPECT_EQ(chat_template.render_chat(inputs), one["rendered"].get<std::string>()) << one["name"];
      continue;
    }
    ++failures;
    try {
      const std::string rendered = chat_template.render_chat(inputs);
      ADD_FAILURE() << one["name"] << " rendered " << rendered;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.what(), one["error"].get<std::string>());
    }
  }
  EXPECT_EQ(failures, 3);
}

}  // namespace
}  // namespace mererun
