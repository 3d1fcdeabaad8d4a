#include "base/error.h"
#include "cli/environment.h"
#include "cli/option_table.h"
#include "cli/options.h"
#include "cli/value_parsing.h"
#include "engine/cpu_isa.h"

namespace mererun {

namespace {

constexpr double kLargestCostRatio = 5;
constexpr const char* kDrafting = "Drafting (changes speed, never the text)";

// In the order of LogLevel.
constexpr const char* kLogLevels[] = {"error", "warn", "info", "debug"};

void parse_cost(const std::string& name, const std::string& value, DraftingFlags& flags) {
  flags.mtp_cost = value == "measured" ? MtpCost::kMeasured : MtpCost::kFixed;
  if (value == "measured" || value == "fixed") return;  // the variable's ratio stays that of the fixed rule
  const auto ratio = parse_number(value);
  if (!ratio || *ratio <= 0 || *ratio > kLargestCostRatio) {
    fail_expected(ErrorCode::kInvalidArgument, name, "measured, fixed or a number above 0 and at most 5",
                  "\"" + value + "\"");
  }
  flags.mtp_cost_ratio = *ratio;
}

}  // namespace

void declare_model(OptionTable& table, ModelFlags& flags, const std::string& default_model) {
  table.group("Model");
  table.text({.names = "--model",
              .value = "ID|PATH",
              .help = "id of an installed model, or a checkpoint folder",
              .default_text = default_model},
             flags.model);
  table.text({.names = "-m,--model-root",
              .value = "DIR",
              .help = "checkpoint folder; --model then says whose defaults apply",
              .default_text = {}},
             flags.model_root);
}

void declare_mtp_root(OptionTable& table, ModelFlags& flags) {
  table.text({.names = "--mtp-root",
              .value = "DIR",
              .help = "folder of the draft head, in it or in its mtp/",
              .default_text = "the model's own"},
             flags.mtp_root);
}

void declare_device(OptionTable& table, DeviceFlags& flags) {
  table.group("Device");
  table.choice({.names = "--backend",
                .value = "NAME",
                .help = "auto, cpu or cuda; results are the same bits on each",
                .default_text = "auto"},
               {"auto", "cpu", "cuda"}, flags.backend);
  table.integer({.names = "--device", .value = "N", .help = "index of the GPU", .default_text = "0"},
                option_ranges::kDevice, flags.device);
  table.integer({.names = "--threads",
                 .value = "N",
                 .help = "CPU threads, at most the hardware threads that it may run on",
                 .default_text = "physical cores"},
                option_ranges::kThreads, flags.threads);
  table.choice(
      {.names = "--cpu-isa",
       .value = "NAME",
       .help = "instruction set of the CPU's kernels: auto (the widest that the machine has), portable, "
               "avx2, avx512, avx512-vnni or neon; results are the same bits with each",
       .default_text = "auto"},
      cpu_isa_names(), flags.cpu_isa);
}

void declare_drafting(OptionTable& table, DraftingFlags& flags) {
  table.group(kDrafting);
  table.choice({.names = "--speculation",
                .value = "auto|on|off",
                .help = "draft with the model's MTP head",
                .default_text = "auto, the model's own default"},
               {"auto", "on", "off"}, [&flags](const std::string& value) {
                 flags.speculation = value == "auto" ? std::nullopt : std::optional(value == "on");
               });
  table.choice({.names = "--route",
                .value = "auto|serial",
                .help = "serial: one token a pass, unpipelined; the oracle of every other route",
                .default_text = "auto"},
               {"auto", "serial"},
               [&flags](const std::string& value) { flags.is_serial_route = value == "serial"; });
  declare_draft_depth(table, flags);
}

void declare_draft_depth(OptionTable& table, DraftingFlags& flags) {
  table.group(kDrafting);
  table.integer(
      {.names = "--mtp-block-size",
       .value = "W",
       .help = "rows a verification may have, drafts plus one; at least 2, clamped to the model's cap",
       .default_text = "by model, 8 or 4"},
      option_ranges::kMtpBlockSize, flags.mtp_block_size);
  table.custom(
      {.names = "--mtp-cost",
       .value = "measured|fixed|R",
       .help = "what a draft costs when the depth is chosen: measured at warm-up, the standard ratio, or R "
               "with 0 < R <= 5",
       .default_text = "measured"},
      [&flags](const auto& name, const auto& value) { parse_cost(name, value, flags); });
}

void declare_output(OptionTable& table, OutputFlags& flags) {
  table.group("Output");
  table.toggle({.names = "--json", .value = {}, .help = "report as JSON on stdout", .default_text = {}},
               flags.json);
  table.toggle({.names = "--quiet", .value = {}, .help = "no progress, errors only", .default_text = {}},
               flags.quiet);
  table.choice({.names = "--log-level",
                .value = "LEVEL",
                .help = "error, warn, info or debug, on stderr",
                .default_text = flags.log_level},
               {"error", "warn", "info", "debug"}, flags.log_level);
}

void declare_prefix_cache(OptionTable& table, const std::string& default_bytes,
                          std::optional<std::int64_t>& bytes, std::optional<std::string>& folder,
                          std::int64_t& disk_bytes) {
  table.group("Prefix cache");
  table.integer({.names = "--prefix-cache-bytes",
                 .value = "N",
                 .help = "memory for computed prompts; 0: off",
                 .default_text = default_bytes},
                option_ranges::kCacheBytes, bytes);
  table.text({.names = "--prefix-cache-dir",
              .value = "DIR",
              .help = "also keep them on disk; the files hold the prompts' text",
              .default_text = "off"},
             folder);
  table.integer({.names = "--prefix-cache-disk-bytes",
                 .value = "N",
                 .help = "room for them there",
                 .default_text = "17179869184"},
                option_ranges::kCacheBytes, disk_bytes);
}

void apply_environment(const Environment& environment, CommonOptions& options) {
  const Overrides& overrides = environment.overrides;
  if (overrides.backend) options.device.backend = *overrides.backend;
  if (overrides.device) options.device.device = *overrides.device;
  if (overrides.threads) options.device.threads = *overrides.threads;
  if (overrides.cpu_isa) options.device.cpu_isa = *overrides.cpu_isa;
  if (overrides.log_level)
    options.output.log_level = kLogLevels[static_cast<std::size_t>(*overrides.log_level)];
  if (overrides.speculation != Speculation::kAuto) {
    options.drafting.speculation = overrides.speculation == Speculation::kOn;
  }
  if (overrides.width) options.drafting.mtp_block_size = *overrides.width;
  // The variable sets the ratio of the fixed rule; the measured rule has none.
  if (overrides.head_cost_ratio) options.drafting.mtp_cost_ratio = *overrides.head_cost_ratio;
}

}  // namespace mererun
