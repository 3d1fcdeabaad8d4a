#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mererun {

struct Environment;
class OptionTable;

/// Which checkpoint. Without `model_root`, `model` is an id or a path (docs/options.md).
struct ModelFlags {
  std::optional<std::string> model;
  std::optional<std::string> model_root;
  std::optional<std::string> mtp_root;
};

/// Where it runs.
struct DeviceFlags {
  std::string backend = "auto";         // auto, cpu, cuda
  std::int64_t device = 0;              // index of the GPU
  std::optional<std::int64_t> threads;  // absent: physical cores
  std::string cpu_isa = "auto";         // a name that parse_cpu_isa knows
};

enum class MtpCost { kMeasured, kFixed };

/// How it drafts.
struct DraftingFlags {
  std::optional<bool> speculation;             // absent: auto, the model's default
  std::optional<std::int64_t> mtp_block_size;  // width W; absent: the model's default
  MtpCost mtp_cost = MtpCost::kMeasured;
  std::optional<double> mtp_cost_ratio;  // of kFixed; absent: the standard ratio
  bool is_serial_route = false;          // --route serial: the width-1 oracle
};

/// How it reports.
struct OutputFlags {
  bool json = false;
  bool quiet = false;              // no progress, errors only
  std::string log_level = "warn";  // error, warn, info, debug
};

/// What every command has. A command without a model leaves those fields alone.
struct CommonOptions {
  ModelFlags model;
  DeviceFlags device;
  DraftingFlags drafting;
  OutputFlags output;
};

/// A model of random weights in place of a checkpoint.
struct SyntheticFlags {
  std::optional<std::string> geometry;
  std::optional<std::int64_t> layers;     // absent: the geometry's own number
  std::optional<std::int64_t> table_mib;  // absent: 64
};

/// How a token is chosen; absent values come from the model's generation_config.json.
struct SamplingFlags {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int64_t> top_k;
  std::optional<double> min_p;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  double repetition_penalty = 1;
  std::optional<std::uint64_t> seed;  // absent: random, reported
};

struct TextChatOptions : CommonOptions {
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::string> messages_file;
  bool interactive = false;
  std::optional<std::string> system;
  std::int64_t max_tokens = 2048;
  std::optional<std::int64_t> context_size;
  SamplingFlags sampling;
  std::vector<std::string> stop;
  std::optional<std::string> response_format;  // text, json_object, json_schema
  std::optional<std::string> json_schema_file;
  std::optional<std::string> grammar_file;
  std::optional<bool> thinking;
  bool show_thinking = false;
  std::optional<std::string> reasoning_effort;  // low, medium, xhigh
  std::optional<bool> stream;                   // absent: on a terminal
  bool stats = false;
  std::optional<std::int64_t> logprobs;
  std::optional<std::int64_t> prefix_cache_bytes;  // absent: 1 GiB in a conversation or with a folder, else 0
  std::optional<std::string> prefix_cache_dir;
  std::int64_t prefix_cache_disk_bytes = std::int64_t{16} << 30;
  std::vector<std::string> images;
  bool require_installed = false;  // always true here: nothing is ever downloaded
};

struct ModelListOptions : CommonOptions {
  bool all = false;
};

struct ModelInspectOptions : CommonOptions {
  bool tensors = false;
  bool checksums = false;
  bool verify = false;
};

struct ModelVerifyOptions : CommonOptions {};

struct ModelLinkOptions : CommonOptions {};

struct ModelQualifyOptions : CommonOptions {
  std::optional<std::string> receipt;  // file, or folder for <model>.qualification.json
};

struct ModelConvertOptions : CommonOptions {
  std::optional<std::string> source;
  std::optional<std::string> output_folder;
  std::int64_t bits = 4;
  std::int64_t group = 64;
  std::string profile = "q4";  // one of recipe_names()
  std::optional<std::string> mtp_root;
  std::optional<std::string> id;
};

/// Serial, adaptive and forced generation of one model. Lists form a matrix of scenarios.
struct BenchmarkMtpOptions : CommonOptions {
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::vector<std::int64_t> prompt_repeats = {150};
  std::vector<std::int64_t> decode_tokens = {32};
  std::vector<double> temperatures = {0};
  double top_p = 0.9;
  std::int64_t context_size = 16384;
  std::int64_t forced_min_prompt_tokens = 1;
  std::int64_t repetitions = 1;
  std::int64_t warmups = 1;
  std::int64_t warmup_tokens = 16;
  std::vector<std::string> variants = {"baseline", "adaptive", "forced"};  // run order
  SyntheticFlags synthetic;

  // The single-value spellings; `validate` moves them into the lists.
  std::optional<std::int64_t> prompt_repeat;
  std::vector<std::int64_t> prompt_repeat_values;
  std::optional<std::int64_t> decode_token;
  std::vector<std::int64_t> decode_token_values;
  std::optional<double> temperature;
  std::vector<double> temperature_values;
};

/// Target-only verification rate by width.
struct BenchmarkVerificationOptions : CommonOptions {
  std::vector<std::int64_t> widths;  // empty: the family's default list
  bool uncertified = false;
  std::int64_t tokens = 128;
  std::int64_t trials = 2;
  SyntheticFlags synthetic;
};

struct ApiServeOptions : CommonOptions {
  ApiServeOptions() { output.log_level = "info"; }  // a line for each request is what a server's log is for

  std::int64_t port = 8080;  // 0: any free one
  std::string host = "127.0.0.1";
  std::optional<std::string> api_key;
  std::int64_t rate_limit_per_minute = 60;  // 0: off
  std::int64_t max_active_requests = 1;
  std::int64_t max_queued_requests = 64;
  std::int64_t context_size = 32768;
  std::int64_t max_body_bytes = 33554432;
  double request_timeout = 0;              // seconds, waiting included; 0: none
  std::optional<std::string> cors_origin;  // a site whose pages may call, "*" for all
  bool log_content = false;
  std::optional<std::int64_t> prefix_cache_bytes;  // absent: by free memory; 0: off
  std::optional<std::string> prefix_cache_dir;
  std::int64_t prefix_cache_disk_bytes = std::int64_t{16} << 30;
  bool preflight = false;
};

/// For every options struct: `declare` lists its options, bound to the struct's fields; `validate` checks
/// what concerns several options together and settles derived fields. Neither touches a file. Errors:
/// kInvalidArgument naming the option; kUnsupported for what this program refuses by name.
void declare(OptionTable& table, TextChatOptions& options);
void declare(OptionTable& table, ModelListOptions& options);
void declare(OptionTable& table, ModelInspectOptions& options);
void declare(OptionTable& table, ModelVerifyOptions& options);
void declare(OptionTable& table, ModelLinkOptions& options);
void declare(OptionTable& table, ModelQualifyOptions& options);
void declare(OptionTable& table, ModelConvertOptions& options);
void declare(OptionTable& table, BenchmarkMtpOptions& options);
void declare(OptionTable& table, BenchmarkVerificationOptions& options);
void declare(OptionTable& table, ApiServeOptions& options);

void validate(TextChatOptions& options);
void validate(ModelListOptions& options);
void validate(ModelInspectOptions& options);
void validate(ModelVerifyOptions& options);
void validate(ModelLinkOptions& options);
void validate(ModelQualifyOptions& options);
void validate(ModelConvertOptions& options);
void validate(BenchmarkMtpOptions& options);
void validate(BenchmarkVerificationOptions& options);
void validate(ApiServeOptions& options);

/// Variables become the defaults that flags then replace. Called before parsing.
void apply_environment(const Environment& environment, CommonOptions& options);
void apply_environment(const Environment& environment, ApiServeOptions& options);
/// Each variant sets drafting by itself; the variables for it are cleared.
void apply_environment(const Environment& environment, BenchmarkMtpOptions& options);

/// The groups of common options, for `declare`. `declare_model` names the default model in the help.
void declare_model(OptionTable& table, ModelFlags& flags, const std::string& default_model);
void declare_mtp_root(OptionTable& table, ModelFlags& flags);
void declare_device(OptionTable& table, DeviceFlags& flags);
/// Whether it drafts and by which route, then how: two parts of one group.
void declare_drafting(OptionTable& table, DraftingFlags& flags);
void declare_draft_depth(OptionTable& table, DraftingFlags& flags);
void declare_output(OptionTable& table, OutputFlags& flags);
/// The group "Prefix cache". `default_bytes` is the help's word for what holds without --prefix-cache-bytes.
void declare_prefix_cache(OptionTable& table, const std::string& default_bytes,
                          std::optional<std::int64_t>& bytes, std::optional<std::string>& folder,
                          std::int64_t& disk_bytes);
void declare_synthetic(OptionTable& table, SyntheticFlags& flags);

/// Checks a verification run's widths against what is certified, before any load.
/// Errors: kInvalidArgument for a width above `certified_max` unless `uncertified` was given.
void check_widths(const BenchmarkVerificationOptions& options, std::int64_t certified_max);

/// True for an address that only this machine can reach: localhost, 127.0.0.0/8, ::1.
bool is_loopback(const std::string& host);
/// "http://127.0.0.1:8080/"; an IPv6 address stands in brackets.
std::string url_of(const std::string& host, std::int64_t port);

}  // namespace mererun
