#include "engine/prompt_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

/// Adds the end of a rendered part, if it is a proper prefix of the prompt in text and in ids. Returns it, or
/// 0.
Position add_boundary(const Engine& engine, const ChatPrompt& part, std::string_view text, PromptPlan& plan) {
  std::string rendered;
  try {
    rendered = engine.render(part, false);
  } catch (const Error&) {
    return 0;  // a template may refuse a part (no user message yet): then there is no such boundary
  }
  if (rendered.empty() || rendered.size() >= text.size() || !text.starts_with(rendered)) return 0;
  const std::vector<TokenId> ids = engine.tokenizer().encode(rendered);
  if (ids.size() >= plan.ids.size() || !std::equal(ids.begin(), ids.end(), plan.ids.begin())) return 0;
  plan.semantic.push_back(static_cast<Position>(ids.size()));
  return plan.semantic.back();
}

ChatPrompt first_messages(const ChatPrompt& chat, std::size_t count) {
  ChatPrompt part = chat;
  Json messages = Json::array();
  for (std::size_t i = 0; i < count; ++i) messages.push_back((*chat.messages)[i]);
  part.messages = std::make_shared<const Json>(std::move(messages));
  return part;
}

bool is_system(const Json& message) {
  if (!message.is_object() || !message.contains("role")) return false;
  return message["role"] == "system" || message["role"] == "developer";
}

/// The end of what the conversation says before its first turn. A template may refuse to render that alone;
/// then it is where the ids stop depending on the first user message.
void add_system_boundary(const Engine& engine, const ChatPrompt& chat, std::string_view text,
                         PromptPlan& plan) {
  const Json& messages = *chat.messages;
  const bool has_system = is_system(messages[0]);
  const bool has_tools = chat.tools && chat.tools->is_array() && !chat.tools->empty();
  if (!has_system && !has_tools) return;
  if (has_system) {
    add_boundary(engine, first_messages(chat, 1), text, plan);
    if (!plan.semantic.empty()) {
      plan.system_end = plan.semantic.front();
      return;
    }
  }
  std::size_t shared = plan.ids.size() - 1;
  for (const char* other : {"A", "7"}) {
    ChatPrompt part = first_messages(chat, has_system ? 1 : 0);
    Json changed = *part.messages;
    changed.push_back({{"role", "user"}, {"content", other}});
    part.messages = std::make_shared<const Json>(std::move(changed));
    std::vector<TokenId> ids;
    try {
      ids = engine.tokenizer().encode(engine.render(part, false));
    } catch (const Error&) {
      return;
    }
    const auto [end, ignored] = std::mismatch(ids.begin(), ids.end(), plan.ids.begin(), plan.ids.end());
    shared = std::min(shared, static_cast<std::size_t>(end - ids.begin()));
  }
  if (shared == 0) return;
  plan.system_end = static_cast<Position>(shared);
  plan.semantic.push_back(*plan.system_end);
}

/// A message ends with an id that ends replies.
void add_message_ends(const Engine& engine, PromptPlan& plan) {
  const std::vector<TokenId>& ends = engine.eos_ids();
  Position last = 0;
  for (std::size_t i = 0; i + 1 < plan.ids.size(); ++i) {
    const auto end = static_cast<Position>(i) + 1;
    if (end - last < kMessageGap || std::find(ends.begin(), ends.end(), plan.ids[i]) == ends.end()) continue;
    plan.message_ends.push_back(end);
    last = end;
  }
}

void add_semantic_boundaries(const Engine& engine, const ChatPrompt& chat, std::string_view text,
                             PromptPlan& plan) {
  const Json& messages = *chat.messages;
  if (!messages.is_array() || messages.empty()) return;
  add_system_boundary(engine, chat, text, plan);
  if (messages.size() > 1) add_boundary(engine, first_messages(chat, messages.size() - 1), text, plan);
  // A next turn may render differently from the generation prompt on (reasoning dropped or added).
  plan.messages_end = add_boundary(engine, chat, text, plan);
  std::sort(plan.semantic.begin(), plan.semantic.end());
  plan.semantic.erase(std::unique(plan.semantic.begin(), plan.semantic.end()), plan.semantic.end());
}

/// True if the last <think> of the prompt is still open.
bool ends_in_reasoning(std::string_view text) {
  const auto open = text.rfind("<think>");
  if (open == std::string_view::npos) return false;
  const auto close = text.rfind("</think>");
  if (close != std::string_view::npos && close > open) return false;
  // Only the generation prompt opens a block that the reply continues.
  return text.substr(open + 7).find_first_not_of("\r\n\t ") == std::string_view::npos;
}

}  // namespace

PromptPlan plan_prompt(const Engine& engine, const GenerateRequest& request) {
  const int given = (request.chat ? 1 : 0) + (request.text ? 1 : 0) + (request.ids ? 1 : 0);
  if (given != 1)
    fail_expected(ErrorCode::kInvalidArgument, "prompt", "exactly one", fmt::format("{}", given));
  PromptPlan plan;
  if (request.chat) {
    const std::string text = engine.render(*request.chat);
    plan.ids = engine.tokenizer().encode(text);
    plan.starts_in_reasoning = ends_in_reasoning(text);
    add_semantic_boundaries(engine, *request.chat, text, plan);
    add_message_ends(engine, plan);
  } else if (request.text) {
    plan.ids = engine.tokenizer().encode(*request.text);
  } else {
    plan.ids = *request.ids;
  }
  if (plan.ids.empty()) fail_expected(ErrorCode::kInvalidArgument, "prompt", "at least one token", "none");
  const int vocabulary = engine.resolved().config.vocabulary;
  for (const TokenId id : plan.ids) {
    if (id < 0 || id >= vocabulary) {
      fail_expected(ErrorCode::kInvalidArgument, "prompt", fmt::format("token ids 0..{}", vocabulary - 1),
                    fmt::format("{}", id));
    }
  }
  return plan;
}

}  // namespace mererun
