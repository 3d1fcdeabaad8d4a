#include "model/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/config_json.h"
#include "model/host_weights.h"
#include "model/json_fields.h"

namespace mererun {

namespace {

RepositoryRevision read_source(const JsonFields& fields, std::string_view key) {
  const std::optional<JsonFields> object = fields.object(key);
  if (!object) return {};
  return {object->text_or("repository", ""), object->text_or("revision", "")};
}

std::optional<NormConvention> read_convention(const JsonFields& fields, std::string_view key) {
  const std::string text = fields.text_or(key, "");
  if (text.empty()) return std::nullopt;
  try {
    return parse_norm_convention(text);
  } catch (const Error&) {
    fields.fail(key, "\"final\" or \"zero-centred\"");
  }
}

std::optional<HeadNormSpan> read_norm_span(const JsonFields& fields) {
  constexpr std::string_view kKey = "mtp_hidden_norm";
  const std::string text = fields.text_or(kKey, "");
  if (text.empty()) return std::nullopt;
  if (text == "full-width") return HeadNormSpan::kFullWidth;
  if (text == "per-stream") return HeadNormSpan::kPerStream;
  fields.fail(kKey, "\"full-width\" or \"per-stream\"");
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Whether a relative path stays inside its folder.
bool stays_inside(const std::filesystem::path& path) {
  return !path.empty() && path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end();
}

std::vector<ModelManifest::File> read_files(const JsonFields& fields) {
  std::vector<ModelManifest::File> files;
  const Json* list = find_member(fields.json(), "files");
  if (list == nullptr) return files;
  if (!list->is_array()) fields.fail("files", "a list of {path, bytes, sha256}");
  for (const Json& entry : *list) {
    if (!entry.is_object()) fields.fail("files", "a list of {path, bytes, sha256}");
    const JsonFields file(entry, fmt::format("{}: files", fields.where()));
    ModelManifest::File stated;
    stated.path = file.text_or("path", "");
    if (!stays_inside(stated.path)) file.fail("path", "a path inside the folder");
    stated.bytes = static_cast<std::uint64_t>(
        require_int(entry, "bytes", 0, std::numeric_limits<std::int64_t>::max(), file.where()));
    stated.sha256 = file.text_or("sha256", "");
    if (!is_sha256(stated.sha256)) file.fail("sha256", "64 lower-case hex digits");
    files.push_back(stated);
  }
  return files;
}

std::optional<std::vector<TokenRange>> read_ranges(const JsonFields& fields) {
  constexpr std::string_view kKey = "draft_vocabulary";
  const Json* list = find_member(fields.json(), kKey);
  if (list == nullptr) return std::nullopt;
  const auto is_id = [](const Json& value) {
    return value.is_number_unsigned() && value.get<std::uint64_t>() <= std::numeric_limits<TokenId>::max();
  };
  std::vector<TokenRange> ranges;
  if (!list->is_array()) fields.fail(kKey, "a list of [first, last]");
  for (const Json& entry : *list) {
    if (!entry.is_array() || entry.size() != 2 || !is_id(entry[0]) || !is_id(entry[1])) {
      fields.fail(kKey, "a list of [first, last]");
    }
    ranges.push_back({entry[0].get<TokenId>(), entry[1].get<TokenId>()});
  }
  return ranges;
}

ModelManifest read_manifest(const Json& document, std::string_view where) {
  const JsonFields fields(document, std::string(where));
  const int format = fields.integer("format", 0, std::numeric_limits<int>::max());
  if (format != 1) {
    fail_expected(ErrorCode::kUnsupported, fmt::format("{}: format", where), "1", std::to_string(format));
  }
  ModelManifest manifest;
  manifest.id = fields.text_or("id", "");
  manifest.target = read_source(fields, "target");
  manifest.mtp = read_source(fields, "mtp");
  manifest.files = read_files(fields);
  manifest.norm_convention = read_convention(fields, "norm_convention");
  manifest.mtp_norm_convention = read_convention(fields, "mtp_norm_convention");
  manifest.draft_vocabulary = read_ranges(fields);
  manifest.head_norm_span = read_norm_span(fields);
  if (fields.has("expects_retrieval"))
    manifest.expects_retrieval = fields.boolean_or("expects_retrieval", false);
  return manifest;
}

}  // namespace

void ModelManifest::apply_to(LoadOptions& options) const {
  options.norm_convention = norm_convention;
  options.mtp_norm_convention = mtp_norm_convention;
  options.head_norm_span = head_norm_span.value_or(options.head_norm_span);
  options.draft_vocabulary = draft_vocabulary;
}

ModelManifest parse_manifest(std::string_view json, std::string_view where) {
  return read_manifest(parse_json_object(json, where), where);
}

std::optional<ModelManifest> load_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "mererun.json";
  const std::optional<Json> document = read_optional_json_file(path);
  if (!document) return std::nullopt;
  return read_manifest(*document, path.string());
}

}  // namespace mererun
