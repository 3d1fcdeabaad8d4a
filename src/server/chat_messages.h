#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/fields.h"

namespace mererun {

/// The messages of a chat-completions request as templates take them: developer reads as system, several of
/// those at the start are one, text parts are joined, arguments of tool calls are objects.
///
/// `messages` is a list. Errors: ApiError 400 for roles and forms that are none, for images and other parts
/// that are no text, naming the field.
nlohmann::ordered_json template_messages(const nlohmann::ordered_json& messages, const std::string& where);

/// Joins the text of several parts: a string, or a list of {"type": "text", "text"}.
/// `kind` of the parts that count as text. Errors: ApiError 400, images with a message of their own.
std::string joined_text(const nlohmann::ordered_json& content, const std::string& where);

/// Refuses a part that is no text.
[[noreturn]] void refuse_part(const std::string& type, const std::string& where);

/// The tools as templates take them, checked: a list of {"type": "function", "function": {"name", ...}}.
/// Errors: ApiError 400.
nlohmann::ordered_json template_tools(const nlohmann::ordered_json& tools, const std::string& where);

/// 1 to 128 letters, digits, '_', '-', '.': a name that the call format can carry.
bool is_tool_name(std::string_view name);

}  // namespace mererun
