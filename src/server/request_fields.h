#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "engine/engine.h"
#include "server/fields.h"

namespace mererun {

/// What a generation request asks for, in whatever API it came.
struct ApiRequest {
  GenerateRequest generate;
  bool stream = false;
  bool include_usage = false;             // a last chunk with counts
  bool include_progress = false;          // counts with every chunk
  std::vector<std::string> ignored = {};  // fields that mean nothing here

  // What the reply needs to know once `generate` has gone to the engine.
  std::vector<std::string> stops = {};
  std::optional<int> logprobs = {};
  std::shared_ptr<const nlohmann::ordered_json> echo = {};  // members that the reply repeats; may be null
};

/// Checks `model`: absent, the served id, or its path. Errors: ApiError 404 model_not_found.
void check_model(Fields& fields, const Engine& engine);

/// Template variables of a request: thinking and its effort as asked for or as the model does by default, and
/// the members of chat_template_kwargs.
nlohmann::ordered_json template_arguments(Fields& fields, const Engine& engine);

/// Puts an effort of reasoning into template variables: "none" turns thinking off.
void set_effort(const std::string& effort, nlohmann::ordered_json& arguments);

/// A conversation in the template's form.
ChatPrompt chat_prompt(nlohmann::ordered_json messages, nlohmann::ordered_json arguments);

/// How an API names what all of them have.
struct CommonFields {
  std::string_view stop = "stop";
  std::vector<std::string> unserved = {};  // refused unless absent, null, false or an empty list
  std::vector<std::string> silent = {};    // taken: they say nothing about the answer
};

/// Reads, behind the form's own fields, what every form of request has: sampling (what is absent follows the
/// model's defaults, the seed is then random), stop strings (one, or up to 16), speculation, mtp_block_size,
/// stream and stream_options. Whatever nobody has read then is `ignored`. Errors: ApiError 400.
void read_common(Fields& fields, const Engine& engine, const CommonFields& names, ApiRequest& request);

}  // namespace mererun
