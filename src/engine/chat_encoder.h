#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/types.h"
#include "engine/request.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mererun {

/// One turn of a made-up conversation.
struct ChatTurn {
  std::string role;  // "user", "assistant"
  std::string content;
};

/// The conversation as a request's prompt, thinking off.
ChatPrompt plain_chat(const std::vector<ChatTurn>& turns);

/// Tokenizer and template of a checkpoint folder without its weights: counts a prompt's tokens before
/// anything large is loaded. It renders as the engine renders a request with plain_chat.
///
/// Thread-safety: thread-safe.
class ChatEncoder {
 public:
  /// Errors: those of Tokenizer::load and load_chat_template.
  explicit ChatEncoder(const std::filesystem::path& folder);

  /// Ids of the rendered conversation with a generation prompt. Errors: the template's own.
  std::vector<TokenId> encode(const std::vector<ChatTurn>& turns) const;

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatTemplate template_;
};

}  // namespace mererun
