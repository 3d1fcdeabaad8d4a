#pragma once

#include <set>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "server/fields.h"

namespace mererun {

/// The messages of a chat-completions request as templates take them: developer reads as system, several of
/// those at the start are one, text parts are joined, arguments of tool calls are objects.
///
/// `messages` is a list. Errors: ApiError 400 for roles and forms that are none, for images and other parts
/// that are no text, naming the field.
nlohmann::ordered_json template_messages(const nlohmann::ordered_json& messages, const std::string& where);

/// The text of a content: a string, or a list of parts {"type", "text"} (text, input_text, output_text) and
/// {"type": "refusal", "refusal"}, joined. Errors: ApiError 400, images with a message of their own.
std::string joined_text(const nlohmann::ordered_json& content, const std::string& where);

/// Member `arguments` of a call as an object: one, or the text of one; {} where there is none or no text.
/// Errors: ApiError 400.
nlohmann::ordered_json call_arguments(Fields& call);

/// Refuses a part that is no text.
[[noreturn]] void refuse_part(const std::string& type, const std::string& where);

/// The tools as templates take them, checked: a list of {"type": "function", "function": {"name", ...}}.
/// Errors: ApiError 400.
nlohmann::ordered_json template_tools(const nlohmann::ordered_json& tools, const std::string& where);

/// Member `name` of a tool: 1 to 128 letters, digits, '_', '-', '.', which the call format can carry. Adds it
/// to `names`, those of the tools before it. Errors: ApiError 400, also for one of these.
std::string read_tool_name(Fields& tool, std::set<std::string>& names);

}  // namespace mererun
