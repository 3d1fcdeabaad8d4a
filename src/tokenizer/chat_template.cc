#include "tokenizer/chat_template.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_parser.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || file.bad()) fail_expected(ErrorCode::kIo, path.string(), "a readable file", "a read error");
  return std::move(text).str();
}

/// A special token is a text, or an object whose content is the text.
void collect_special_tokens(const Json& config, Json& tokens) {
  for (const char* key :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto it = config.find(key);
    if (it == config.end()) continue;
    if (it->is_string()) tokens[key] = *it;
    if (it->is_object() && it->contains("content") && (*it)["content"].is_string())
      tokens[key] = (*it)["content"];
  }
}

std::optional<std::string> template_of(const Json& config, const std::string& where) {
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return std::nullopt;
  if (it->is_string()) return it->get<std::string>();
  if (it->is_array()) {
    for (const Json& entry : *it) {
      if (entry.is_object() && entry.value("name", Json()) == "default" &&
          entry.value("template", Json()).is_string()) {
        return entry["template"].get<std::string>();
      }
    }
  }
  fail_expected(ErrorCode::kCorruptData, where,
                "chat_template to be a text or a list with a template named default", it->type_name());
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, std::string name)
    : source_(std::move(source)),
      name_(std::move(name)),
      program_(jinja::parse_program(source_, name_)),
      special_tokens_(std::make_shared<const Json>(Json::object())),
      clock_(local_time) {}

ChatTemplate ChatTemplate::parse(std::string source, std::string name) {
  constexpr std::size_t kMaxSourceBytes = std::size_t{4} << 20;  // the largest real ones have 30 KiB
  if (source.size() > kMaxSourceBytes) {
    fail_expected(ErrorCode::kCorruptData, name,
                  fmt::format("a template of at most {} bytes", kMaxSourceBytes),
                  fmt::format("{}", source.size()));
  }
  return ChatTemplate(std::move(source), std::move(name));
}

std::string ChatTemplate::render(const Json& variables) const {
  if (!variables.is_object()) {
    fail_expected(ErrorCode::kInvalidArgument, name_, "an object of variables", variables.type_name());
  }
  return jinja::Interpreter(*program_, limits_, clock_).render(variables);
}

std::string ChatTemplate::render_chat(const ChatInputs& inputs) const {
  if (inputs.messages == nullptr || !inputs.messages->is_array()) {
    fail_expected(ErrorCode::kInvalidArgument, "messages", "an array",
                  inputs.messages == nullptr ? "nothing" : inputs.messages->type_name());
  }
  Json variables = *special_tokens_;
  if (inputs.arguments != nullptr && !inputs.arguments->is_null()) {
    if (!inputs.arguments->is_object()) {
      fail_expected(ErrorCode::kInvalidArgument, "template arguments", "an object",
                    inputs.arguments->type_name());
    }
    variables.update(*inputs.arguments);
    for (const char* reserved : {"messages", "tools", "documents", "add_generation_prompt"}) {
      if (inputs.arguments->contains(reserved)) {
        fail_expected(ErrorCode::kInvalidArgument, "template arguments", "names of the template's own",
                      reserved);
      }
    }
  }
  variables["messages"] = *inputs.messages;
  variables["tools"] = inputs.tools != nullptr ? *inputs.tools : Json();
  variables["documents"] = Json();
  variables["add_generation_prompt"] = inputs.add_generation_prompt;
  return render(variables);
}

std::string ChatTemplate::render_chat(const std::vector<ChatMessage>& messages,
                                      bool add_generation_prompt) const {
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    Json entry = {{"role", message.role}, {"content", message.content}};
    if (message.reasoning_content) entry["reasoning_content"] = *message.reasoning_content;
    list.push_back(std::move(entry));
  }
  ChatInputs inputs;
  inputs.messages = &list;
  inputs.add_generation_prompt = add_generation_prompt;
  return render_chat(inputs);
}

void ChatTemplate::set_special_tokens(const Json& tokens) {
  special_tokens_ = std::make_shared<const Json>(tokens);
}

ChatTemplate load_chat_template(const std::filesystem::path& folder) {
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  Json config = Json::object();
  if (std::filesystem::exists(config_path)) {
    config = Json::parse(read_file(config_path), nullptr, false);
    if (!config.is_object()) {
      fail_expected(ErrorCode::kCorruptData, config_path.string(), "a JSON object",
                    config.is_discarded() ? "invalid JSON" : config.type_name());
    }
  }
  const std::filesystem::path template_path = folder / "chat_template.jinja";
  std::optional<std::string> source;
  std::string name = template_path.filename().string();  // errors may reach a client
  if (std::filesystem::exists(template_path)) {
    source = read_file(template_path);
  } else {
    name = "tokenizer_config.json chat_template";
    source = template_of(config, config_path.string());
  }
  if (!source) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format(
            "{}: expected chat_template.jinja, or chat_template in tokenizer_config.json, got neither",
            folder.string()));
  }
  ChatTemplate chat_template = ChatTemplate::parse(*std::move(source), std::move(name));
  Json tokens = Json::object();
  collect_special_tokens(config, tokens);
  chat_template.set_special_tokens(tokens);
  return chat_template;
}

}  // namespace mererun
