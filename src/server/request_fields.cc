#include "server/request_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/overrides.h"
#include "engine/sampling_defaults.h"
#include "server/api_error.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostStops = 16;

std::vector<LogitBias> read_logit_bias(Fields& fields, int vocabulary) {
  const Json* object = fields.object("logit_bias");
  std::vector<LogitBias> out;
  if (object == nullptr) return out;
  Fields entries(*object, fields.path("logit_bias"));
  std::set<TokenId> seen;
  for (const auto& [key, ignored] : object->items()) {
    TokenId id = -1;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failure != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocabulary)
      throw ApiError::bad_field(fields.path("logit_bias"), fmt::format("token ids 0..{}", vocabulary - 1),
                                '"' + key + '"');
    const auto bias = entries.number(key, sampling_ranges::kLogitBias);
    if (!bias) entries.refuse(key, sampling_ranges::kLogitBias.text());
    if (!seen.insert(id).second)
      throw ApiError::bad_field(fields.path("logit_bias"), "each id once", '"' + key + '"');
    out.push_back({id, *bias});
  }
  return out;
}

/// Any 64-bit integer; negative ones are taken modulo 2^64.
std::optional<std::uint64_t> read_seed(Fields& fields) {
  const Json* value = fields.find("seed");
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  if (!value->is_number_integer()) fields.refuse("seed", "a 64-bit integer");
  return static_cast<std::uint64_t>(value->get<std::int64_t>());
}

/// temperature, top_p, top_k, min_p, presence_penalty, frequency_penalty, repetition_penalty, logit_bias,
/// seed.
void read_sampling(Fields& fields, const Engine& engine, GenerateRequest& request) {
  const ModelConfig& config = engine.resolved().config;
  SamplingOptions& out = request.sampling;
  out = sampling_defaults(config);
  out.temperature = fields.number("temperature", sampling_ranges::kTemperature).value_or(out.temperature);
  out.top_p = fields.number("top_p", sampling_ranges::kTopP).value_or(out.top_p);
  out.top_k = static_cast<int>(fields.integer("top_k", {0, INT32_MAX}).value_or(out.top_k));
  out.min_p = fields.number("min_p", sampling_ranges::kMinP).value_or(out.min_p);
  out.presence_penalty = fields.number("presence_penalty", sampling_ranges::kPresencePenalty).value_or(0);
  out.frequency_penalty = fields.number("frequency_penalty", sampling_ranges::kFrequencyPenalty).value_or(0);
  out.repetition_penalty =
      fields.number("repetition_penalty", sampling_ranges::kRepetitionPenalty).value_or(1);
  out.logit_bias = read_logit_bias(fields, config.vocabulary);
  const auto seed = read_seed(fields);
  out.seed = seed ? *seed : random_seed();
}

void read_stop(Fields& fields, std::string_view name, GenerateRequest& request) {
  const Json* value = fields.find(name);
  if (value == nullptr) return;
  const std::string expected = fmt::format("a string or a list of up to {} strings, none empty", kMostStops);
  const Json list = value->is_string() ? Json::array({*value}) : *value;
  if (!list.is_array() || list.size() > kMostStops) fields.refuse(name, expected);
  for (const Json& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty()) fields.refuse(name, expected);
    request.stop.push_back(stop.get<std::string>());
  }
}

void read_speculation(Fields& fields, GenerateRequest& request) {
  const auto wanted = fields.choice("speculation", {"auto", "on", "off"});
  if (wanted == "on") request.speculation = Speculation::kOn;
  if (wanted == "off") request.speculation = Speculation::kOff;
  if (const auto width = fields.integer("mtp_block_size", option_ranges::kMtpBlockSize))
    request.width = static_cast<int>(*width);
}

void read_stream(Fields& fields, ApiRequest& request) {
  request.stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!request.stream) fields.refuse("stream_options", "no such field unless stream is true");
  Fields inner(*options, fields.path("stream_options"));
  request.include_usage = inner.boolean("include_usage").value_or(false);
  request.include_progress = inner.boolean("include_progress").value_or(false);
}

void refuse_unserved(Fields& fields, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const Json* value = fields.find(name);
    const bool is_off = value == nullptr || *value == false || *value == "" || *value == Json::array();
    if (is_off) continue;
    fields.refuse(name, "no such field: it is not served here");
  }
}

}  // namespace

void check_model(Fields& fields, const Engine& engine) {
  const auto model = fields.text("model");
  if (!model || model->empty()) return;
  const ResolvedModel& served = engine.resolved();
  if (*model == served.id || *model == served.folder.string()) return;
  throw ApiError::unknown_model(served.id, *model);
}

Json template_arguments(Fields& fields, const Engine& engine) {
  Json arguments = Json::object();
  arguments["enable_thinking"] = engine.traits().thinking;
  if (const auto effort = fields.text("reasoning_effort")) set_effort(*effort, arguments);
  const Json* kwargs = fields.object("chat_template_kwargs");
  if (kwargs == nullptr) return arguments;
  Fields inner(*kwargs, fields.path("chat_template_kwargs"));
  static_cast<void>(inner.boolean("enable_thinking"));
  static_cast<void>(inner.boolean("preserve_thinking"));
  for (const auto& [name, value] : kwargs->items()) arguments[name] = value;
  return arguments;
}

void set_effort(const std::string& effort, Json& arguments) {
  if (effort == "none")
    arguments["enable_thinking"] = false;
  else
    arguments["reasoning_effort"] = effort;
}

ChatPrompt chat_prompt(Json messages, Json arguments) {
  return {.messages = std::make_shared<const Json>(std::move(messages)),
          .tools = nullptr,
          .template_arguments = std::make_shared<const Json>(std::move(arguments))};
}

void read_common(Fields& fields, const Engine& engine, const CommonFields& names, ApiRequest& request) {
  read_sampling(fields, engine, request.generate);
  read_stop(fields, names.stop, request.generate);
  read_speculation(fields, request.generate);
  read_stream(fields, request);
  refuse_unserved(fields, names.unserved);
  for (const std::string& name : names.silent) static_cast<void>(fields.find(name));
  request.ignored = fields.unread();
}

}  // namespace mererun
