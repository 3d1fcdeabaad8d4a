#include "base/error.h"
#include "cli/option_table.h"
#include "cli/options.h"
#include "convert/recipe.h"

namespace mererun {

void declare(OptionTable& table, ModelListOptions& options) {
  table.group("List");
  table.toggle({.names = "--all",
                .value = {},
                .help = "also the known models that are not installed",
                .default_text = {}},
               options.all);
  declare_output(table, options.output);
}

void validate(ModelListOptions&) {}

void declare(OptionTable& table, ModelInspectOptions& options) {
  declare_model(table, options.model, "demo-dense-4bit");
  declare_mtp_root(table, options.model);
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

void declare(OptionTable& table, ModelVerifyOptions& options) {
  declare_model(table, options.model, "demo-dense-4bit");
  declare_mtp_root(table, options.model);
  declare_output(table, options.output);
}

void validate(ModelVerifyOptions&) {}

void declare(OptionTable& table, ModelLinkOptions& options) {
  table.group("Link");
  table.text({.names = "-m,--model-root",
              .value = "DIR",
              .help = "checkpoint folder to enter into the store (required)",
              .default_text = {}},
             options.model.model_root);
  table.text({.names = "--model",
              .value = "ID",
              .help = "known id under which it is found",
              .default_text = "the one its mererun.json states"},
             options.model.model);
  declare_output(table, options.output);
}

void validate(ModelLinkOptions& options) {
  if (!options.model.model_root)
    fail_expected(ErrorCode::kInvalidArgument, "--model-root", "a folder", "none");
}

void declare(OptionTable& table, ModelQualifyOptions& options) {
  declare_model(table, options.model, "demo-dense-4bit");
  declare_mtp_root(table, options.model);
  table.group("Qualification");
  table.text({.names = "--receipt",
              .value = "PATH",
              .help = "write the report there: a file, or a folder that receives <model>.qualification.json",
              .default_text = {}},
             options.receipt);
  declare_draft_depth(table, options.drafting);
  declare_device(table, options.device);
  declare_output(table, options.output);
}

void validate(ModelQualifyOptions&) {}

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
      {.names = "--profile",
       .value = "NAME",
       .help = "which matrix gets which bits: q4 (--bits everywhere), q3-activation (routed experts 3, "
               "else 4), mixed-LOW-HIGH of 2-6, 3-4, 3-5, 3-6, 3-8, 4-6 (mixed) or 4-8",
       .default_text = "q4"},
      {recipe_names().begin(), recipe_names().end()}, options.profile);
  table.text({.names = "--mtp-root",
              .value = "DIR",
              .help = "folder of the draft head, when it is not in the source",
              .default_text = {}},
             options.mtp_root);
  table.text({.names = "--id",
              .value = "ID",
              .help = "model id that the result's mererun.json states",
              .default_text = {}},
             options.id);
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
