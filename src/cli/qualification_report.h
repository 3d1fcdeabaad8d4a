#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "engine/build_info.h"
#include "engine/device_info.h"
#include "engine/qualification.h"

namespace mererun {

/// Whose qualification it is.
struct QualificationContext {
  std::string model;
  std::string fingerprint;
  BuildInfo build;
  std::string backend;
  DeviceInfo device;
};

/// The report, which is also the receipt: {model, fingerprint, build, backend, device, contractVersion,
/// steps [{name, pass?, details}], pass}. A step that could not run has no `pass`.
nlohmann::json qualification_json(const QualificationContext& context, const QualificationReport& report);

/// One line of the text form: "cold  pass  cachedTokens=0 ...".
std::string qualification_step_text(const QualificationStep& step);

/// Where `--receipt PATH` puts the receipt of `model`: the file, or `<model>.qualification.json` in a folder.
std::filesystem::path receipt_path(const std::filesystem::path& path, const std::string& model);

}  // namespace mererun
