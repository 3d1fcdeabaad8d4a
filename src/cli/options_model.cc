#include "base/error.h"
#include "cli/option_table.h"
#include "cli/options.h"

namespace mererun {

void declare(OptionTable& table, ModelListOptions& options) {
  table.group("List");
  table.toggle({.names = "--all",
                .value = {},
                .help = "also the known models that are not installed, with where to obtain them",
                .default_text = {}},
               options.all);
  declare_output(table, options.output);
}

void validate(ModelListOptions&) {}

void declare(OptionTable& table, ModelInspectOptions& options) {
  declare_model(table, options.model, "demo-dense-4bit");
  table.group("Inspection");
  table.toggle(
      {.names = "--tensors", .value = {}, .help = "every tensor, not only the groups", .default_text = {}},
      options.tensors);
  table.toggle({.names = "--checksums",
                .value = {},
                .help = "compare the files with mererun.json",
                .default_text = {}},
               options.checksums);
  table.toggle(
      {.names = "--verify", .value = {}, .help = "scan all weights for NaN and infinity", .default_text = {}},
      options.verify);
  declare_device(table, options.device);
  declare_output(table, options.output);
}

void validate(ModelInspectOptions&) {}

void declare(OptionTable& table, ModelQualifyOptions& options) {
  declare_model(table, options.model, "demo-dense-4bit");
  table.group("Qualification");
  table.text({.names = "--receipt",
              .value = "PATH",
              .help = "write the report there: a file, or a folder that receives <model>.qualification.json",
              .default_text = {}},
             options.receipt);
  declare_drafting(table, options.drafting);
  declare_device(table, options.device);
  declare_output(table, options.output);
}

void validate(ModelQualifyOptions& options) {
  if (options.drafting.speculation == false || options.drafting.is_serial_route) {
    fail_expected(ErrorCode::kInvalidArgument, "model qualify", "drafting, whose exactness it proves",
                  "--speculation off or --route serial");
  }
}

void apply_environment(const Environment& environment, ModelQualifyOptions& options) {
  apply_environment(environment, static_cast<CommonOptions&>(options));
  options.drafting.speculation.reset();
}

void declare(OptionTable& table, ModelConvertOptions& options) {
  table.group("Conversion");
  table.text({.names = "--source",
              .value = "DIR",
              .help = "checkpoint folder to read (required)",
              .default_text = {}},
             options.source);
  table.text({.names = "--output",
              .value = "DIR",
              .help = "folder to write (required); must not exist",
              .default_text = {}},
             options.output_folder);
  table.integer(
      {.names = "--bits", .value = "N", .help = "bits a weight: 2, 3, 4, 5, 6 or 8", .default_text = "4"},
      {2, 8}, options.bits);
  table.integer(
      {.names = "--group", .value = "N", .help = "weights a group: 32, 64 or 128", .default_text = "64"},
      {32, 128}, options.group);
  table.choice(
      {.names = "--profile", .value = "NAME", .help = "q4, q3-activation or mixed", .default_text = "q4"},
      {"q4", "q3-activation", "mixed"}, options.profile);
  declare_output(table, options.output);
}

void validate(ModelConvertOptions& options) {
  const auto require = [](const std::optional<std::string>& value, const char* name) {
    if (!value) fail_expected(ErrorCode::kInvalidArgument, name, "a folder", "none");
  };
  require(options.source, "--source");
  require(options.output_folder, "--output");
  if (options.bits == 7) fail_expected(ErrorCode::kInvalidArgument, "--bits", "2, 3, 4, 5, 6 or 8", "7");
  if (options.group != 32 && options.group != 64 && options.group != 128) {
    fail_expected(ErrorCode::kInvalidArgument, "--group", "32, 64 or 128", std::to_string(options.group));
  }
}

}  // namespace mererun
