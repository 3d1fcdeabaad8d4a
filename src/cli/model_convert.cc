#include <csignal>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_setup.h"
#include "cli/exit_codes.h"
#include "cli/json_output.h"
#include "cli/program_context.h"
#include "cli/text_table.h"
#include "convert/convert.h"

namespace mererun {
namespace {

ConversionOptions conversion_options(const ModelConvertOptions& options) {
  ConversionOptions conversion;
  conversion.source = *options.source;
  conversion.output = *options.output_folder;
  conversion.mtp_root = options.mtp_root.value_or("");
  conversion.id = options.id.value_or("");
  conversion.recipe = {.profile = options.profile,
                       .bits = static_cast<int>(options.bits),
                       .group = static_cast<int>(options.group)};
  return conversion;
}

std::string head_text(const ConversionReport& report) {
  if (!report.has_head) return "none in the source";
  if (report.draft_rows == 0) return "in mtp/";
  return fmt::format("in mtp/, with a coarse output matrix of {} rows",
                     count_text(static_cast<std::uint64_t>(report.draft_rows)));
}

std::string report_text(const ConversionReport& report) {
  TextTable summary("ll");
  summary.add({"written", report.output.string()});
  summary.add(
      {"bytes", fmt::format("{} of {}", byte_text(report.output_bytes), byte_text(report.source_bytes))});
  summary.add({"bits a weight", fmt::format("{:.3f}", bits_per_weight(report))});
  summary.add(
      {"weight files", fmt::format("{}, of which {} were there", report.shards, report.resumed_shards)});
  summary.add({"draft head", head_text(report)});
  summary.add({"read back", "compared with the source, and bound as loading does"});
  TextTable precisions("lrr", 2);
  precisions.add({"precision", "weights", "relative error"});
  for (const auto& [format, error] : report.precisions)
    precisions.add({fmt::format("Q{} g{}", format.first, format.second), count_text(error.weights),
                    fmt::format("{:.4f}", error.relative())});
  std::string text = summary.text() + "\n" + precisions.text();
  for (const std::string& note : report.notes) text += fmt::format("note: {}\n", note);
  return text;
}

}  // namespace

int run_model_convert(const ModelConvertOptions& options, ProgramContext& context) {
  // A write beyond a limit on file size must fail like one on a full disk, not end the process.
  std::signal(SIGXFSZ, SIG_IGN);
  ProgressDisplay display(progress_mode(options, context), context.terminal.stderr_columns);
  try {
    const ConversionReport report =
        convert_checkpoint(conversion_options(options), [&](std::uint64_t done, std::uint64_t total) {
          return show_bytes(display, context, "convert", done, total);
        });
    display.finish();
    write_stdout(options.output.json ? json_text(conversion_json(report)) : report_text(report));
  } catch (const Error& error) {
    display.finish();
    if (error.code() != ErrorCode::kCancelled) throw;
    return kExitInterrupted;
  }
  return kExitDone;
}

}  // namespace mererun
