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

/// temperature, top_p, top_k, min_p, presence_penalty, frequency_penalty, repetition_penalty, logit_bias,
/// seed; what is absent follows the model's defaults, the seed is then random.
void read_sampling(Fields& fields, const Engine& engine, GenerateRequest& request);

/// `name`: a string or up to 16 of them, none empty.
void read_stop(Fields& fields, std::string_view name, GenerateRequest& request);

/// speculation (auto, on, off) and mtp_block_size.
void read_speculation(Fields& fields, GenerateRequest& request);

/// stream and stream_options.
void read_stream(Fields& fields, ApiRequest& request);

/// Refuses every field of `names` that is present and not null, false or an empty list.
void refuse_unserved(Fields& fields, const std::vector<std::string>& names);

/// Template variables of a request: thinking as asked for or as the model does by default, and the members
/// of chat_template_kwargs.
nlohmann::ordered_json template_arguments(Fields& fields, const Engine& engine);

}  // namespace mererun
