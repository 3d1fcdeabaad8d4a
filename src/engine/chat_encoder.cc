#include "engine/chat_encoder.h"

#include <nlohmann/json.hpp>

namespace mererun {

ChatPrompt plain_chat(const std::vector<ChatTurn>& turns) {
  using Json = nlohmann::ordered_json;
  Json messages = Json::array();
  for (const ChatTurn& turn : turns) messages.push_back({{"role", turn.role}, {"content", turn.content}});
  return {.messages = std::make_shared<const Json>(std::move(messages)),
          .tools = nullptr,
          .template_arguments = std::make_shared<const Json>(Json{{"enable_thinking", false}})};
}

ChatEncoder::ChatEncoder(const std::filesystem::path& folder)
    : tokenizer_(Tokenizer::load(folder / "tokenizer.json")), template_(load_chat_template(folder)) {}

std::vector<TokenId> ChatEncoder::encode(const std::vector<ChatTurn>& turns) const {
  const ChatPrompt prompt = plain_chat(turns);
  return tokenizer_->encode(template_.render_chat({.messages = prompt.messages.get(),
                                                   .tools = nullptr,
                                                   .arguments = prompt.template_arguments.get(),
                                                   .add_generation_prompt = true}));
}

}  // namespace mererun
