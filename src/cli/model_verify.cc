#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/inspection_run.h"
#include "cli/json_output.h"
#include "cli/text_table.h"

namespace mererun {
namespace {

std::string report_text(const Inspection& inspection) {
  TextTable table("ll");
  table.add({"folder", inspection.folder.string()});
  table.add({"files", inspection.checksums_matched
                          ? fmt::format("{} are as mererun.json says", *inspection.checksums_matched)
                          : std::string("no checksums to compare with (none in a mererun.json)")});
  table.add({"tensors", inspection.trunk_norms
                            ? fmt::format("{}, of the names, shapes and types that loading needs",
                                          inspection.tensor_count)
                            : std::string("do not load")});
  if (inspection.verified_tensors)
    table.add(
        {"values", fmt::format("{} tensors scanned for NaN and infinity", *inspection.verified_tensors)});
  std::string text = table.text();
  for (const std::string& problem : inspection.problems) text += fmt::format("problem: {}\n", problem);
  if (inspection.problems.empty() && !inspection.is_stopped) text += "sound\n";
  return text;
}

nlohmann::json report_json(const Inspection& inspection) {
  nlohmann::json report = {{"id", inspection.id},
                           {"path", inspection.folder.string()},
                           {"fingerprint", inspection.fingerprint},
                           {"tensors", inspection.tensor_count},
                           {"problems", inspection.problems},
                           {"pass", inspection.problems.empty() && !inspection.is_stopped}};
  if (inspection.checksums_matched) report["filesMatched"] = *inspection.checksums_matched;
  if (inspection.verified_tensors) report["tensorsScanned"] = *inspection.verified_tensors;
  return report;
}

}  // namespace

int run_model_verify(const ModelVerifyOptions& options, ProgramContext& context) {
  InspectionOptions inspected = inspection_options(options, context);
  inspected.compares_checksums = true;
  inspected.needs_checksums = false;
  inspected.scans_values = true;
  const Inspection inspection = run_inspection(inspected, options, context);
  write_stdout(options.output.json ? json_text(report_json(inspection)) : report_text(inspection));
  return exit_code_of(inspection);
}

}  // namespace mererun
