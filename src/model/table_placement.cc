#include "model/table_placement.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/config_json.h"
#include "checkpoint/tensor_names.h"
#include "model/json_fields.h"

namespace mererun {

void check_table_placement(const std::filesystem::path& folder, std::vector<std::string>& problems) {
  const std::filesystem::path path = folder / "MERERUN_PLE_STORE.json";
  const std::optional<Json> document = read_optional_json_file(path);
  if (!document) return;
  const JsonFields fields(*document, path.string());
  const Json* files = find_member(*document, "files");
  if (files == nullptr || !files->is_array()) fields.fail("files", "a list of {path, bytes}");
  for (const Json& entry : *files) {
    if (!entry.is_object()) fields.fail("files", "a list of {path, bytes}");
    const JsonFields file(entry, fmt::format("{}: files", path.string()));
    const std::string name = file.text_or("path", "");
    if (name.empty()) file.fail("path", "a path");
    const std::int64_t stated =
        require_int(entry, "bytes", 0, std::numeric_limits<std::int64_t>::max(), file.where());
    std::error_code error;
    const std::uintmax_t found = std::filesystem::file_size(folder / name, error);
    if (!error && found == static_cast<std::uintmax_t>(stated)) continue;
    problems.push_back(fmt::format("{}: expected {} bytes (MERERUN_PLE_STORE.json), got {}", quote(name),
                                   stated, error ? "no such file" : std::to_string(found)));
  }
}

}  // namespace mererun
