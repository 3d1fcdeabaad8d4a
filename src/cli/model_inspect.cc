#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/inspection_run.h"
#include "cli/json_output.h"
#include "cli/text_table.h"
#include "engine/model_listing.h"

namespace mererun {
namespace {

std::string precision_text(std::string_view dtype, int bits, int group) {
  return bits > 0 ? fmt::format("Q{} g{}", bits, group) : std::string(dtype);
}

std::string source_text(const RepositoryRevision& source) {
  if (source.empty()) return "not stated";
  return source.revision.empty() ? source.repository
                                 : fmt::format("{} at {}", source.repository, source.revision);
}

void add_geometry(const Inspection& inspection, TextTable& table) {
  const ModelConfig& c = *inspection.config;
  const auto number = [](int value) { return count_text(static_cast<std::uint64_t>(value)); };
  table.add({"layers", fmt::format("{}: {} linear (Gated DeltaNet), {} full attention", c.layers,
                                   c.count(LayerKind::kDeltaNet), c.count(LayerKind::kAttention))});
  table.add({"sizes", fmt::format("hidden {}, vocabulary {}, {} heads of {}, {} for keys and values",
                                  number(c.hidden), number(c.vocabulary), c.heads, c.head_dim, c.kv_heads)});
  if (c.is_moe())
    table.add(
        {"experts", fmt::format("{} of {} a token, width {}; shared expert of width {}", c.experts_per_token,
                                c.experts, number(c.moe_intermediate), number(c.shared_intermediate))});
  else
    table.add({"feed-forward", fmt::format("width {}", number(c.intermediate))});
  if (c.flash) {
    table.add({"streams", fmt::format("{}, read and written through rank {}", c.flash->streams,
                                      number(c.flash->stream_lowrank))});
    table.add(
        {"sparse attention", fmt::format("{} positions in blocks of {}, chosen by {} heads of {}",
                                         number(c.flash->indexer_budget), c.flash->indexer_compress_ratio,
                                         c.flash->indexer_heads, c.flash->indexer_head_dim)});
    if (c.flash->has_ngrams())
      table.add({"n-grams", fmt::format("{} rows of {} a token, in layer {}", c.flash->ngram_heads(),
                                        c.flash->ngram_width(), c.flash->ngram_layers.front())});
  }
  table.add({"context",
             fmt::format("{} by default, {} at most", number(inspection.context), number(c.max_positions))});
}

std::string norms_text(const Inspection& inspection) {
  std::string text = fmt::format("trunk {}", name_of(*inspection.trunk_norms));
  if (inspection.head_norms) text += fmt::format(", head {}", name_of(*inspection.head_norms));
  return text;
}

std::string head_text(const Inspection& inspection) {
  if (!inspection.head) return "none found";
  const InspectedHead& head = *inspection.head;
  return fmt::format("{} ({}), {}, proposes {}, {}", head.path.string(), head.place,
                     precision_text(head.dtype, head.bits, head.group),
                     head.vocabulary_rows
                         ? count_text(static_cast<std::uint64_t>(*head.vocabulary_rows)) + " ids"
                         : std::string("every id"),
                     head.shortlist ? "with a shortlist matrix" : "no shortlist matrix");
}

std::string summary_text(const Inspection& inspection) {
  const ModelTraits& traits = inspection.traits;
  TextTable table("ll");
  table.add({"model", fmt::format("{} ({}, {})", inspection.id, name_of(traits.family), traits.weights)});
  table.add({"folder", inspection.folder.string()});
  if (!inspection.fingerprint.empty()) table.add({"fingerprint", inspection.fingerprint});
  table.add({"source", source_text(inspection.target)});
  if (!inspection.mtp.empty()) table.add({"head source", source_text(inspection.mtp)});
  if (inspection.config) add_geometry(inspection, table);
  table.add(
      {"drafting", fmt::format("{}, W {} of at most {}, certified 1..{}{}", name_of(traits.mtp), traits.width,
                               traits.width_cap, traits.certified_width,
                               traits.prompt_threshold > 0
                                   ? fmt::format(", prompts of {} tokens or more", traits.prompt_threshold)
                                   : std::string())});
  table.add({"draft head", head_text(inspection)});
  if (inspection.trunk_norms) table.add({"norms", norms_text(inspection)});
  if (const auto& file = inspection.chat_template)
    table.add({"template", fmt::format("{} {}", file->sha256, file->name)});
  if (const auto& file = inspection.tokenizer)
    table.add(
        {"tokenizer", fmt::format("{} {} ids", file->sha256,
                                  count_text(static_cast<std::uint64_t>(inspection.tokenizer_vocabulary)))});
  table.add(
      {"exactness", fmt::format("{}, contract {}, backend {}", fmt::join(inspection.exactness.levels, " "),
                                inspection.exactness.contract_version, inspection.exactness.backend)});
  table.add({"qualification", inspection.qualification});
  return table.text();
}

std::string groups_text(const Inspection& inspection) {
  TextTable table("lrlr", 2);
  table.add({"tensors", "count", "precision", "bytes"});
  for (const TensorGroup& group : inspection.groups) {
    table.add({group.name, count_text(static_cast<std::uint64_t>(group.count)),
               precision_text(name_of(group.dtype), group.bits, group.group), count_text(group.bytes)});
  }
  table.add({"stored, all", count_text(static_cast<std::uint64_t>(inspection.tensor_count)), "",
             count_text(inspection.tensor_bytes)});
  return "\n" + table.text();
}

std::string tensors_text(const Inspection& inspection) {
  TextTable table("lllrl", 2);
  table.add({"tensor", "dtype", "shape", "bytes", "file"});
  for (const InspectedTensor& t : inspection.tensors)
    table.add({t.name, t.dtype, fmt::format("[{}]", fmt::join(t.shape, ", ")), count_text(t.bytes), t.file});
  return "\n" + table.text();
}

std::string memory_text(const Inspection& inspection) {
  TextTable table("rrrrrr", 2);
  table.add({"context", "weights", "arena", "state", "KV", "memory"});
  for (const MemoryNeed& need : inspection.memory) {
    table.add({count_text(static_cast<std::uint64_t>(need.context)), byte_text(need.weights),
               byte_text(need.arena), byte_text(need.state), byte_text(need.kv), byte_text(need.total())});
  }
  return "\n" + table.text();
}

std::string list_text(std::string_view title, const std::vector<std::string>& lines) {
  constexpr std::size_t kListed = 20;
  std::string text = fmt::format("\n{}\n", title);
  for (std::size_t i = 0; i < lines.size() && i < kListed; ++i) text += fmt::format("  {}\n", lines[i]);
  if (lines.size() > kListed) text += fmt::format("  and {} more\n", lines.size() - kListed);
  return text;
}

std::string report_text(const Inspection& inspection) {
  std::string text = summary_text(inspection);
  if (!inspection.groups.empty()) text += groups_text(inspection);
  if (!inspection.tensors.empty()) text += tensors_text(inspection);
  if (!inspection.memory.empty()) text += memory_text(inspection);
  if (inspection.checksums_matched)
    text += fmt::format("\n{} files are as mererun.json says\n", *inspection.checksums_matched);
  if (inspection.verified_tensors)
    text += fmt::format("\n{} tensors scanned for NaN and infinity\n", *inspection.verified_tensors);
  if (!inspection.notes.empty()) text += list_text("notes", inspection.notes);
  if (!inspection.problems.empty()) text += list_text("problems", inspection.problems);
  return text;
}

}  // namespace

int run_model_inspect(const ModelInspectOptions& options, ProgramContext& context) {
  InspectionOptions inspected = inspection_options(options, context);
  inspected.lists_tensors = options.tensors;
  inspected.compares_checksums = options.checksums;
  inspected.scans_values = options.verify;
  const Inspection inspection = run_inspection(inspected, options, context);
  for (const std::string& warning : inspection.warnings)
    log(LogLevel::kWarn, "inspect", "warning=\"{}\"", warning);
  write_stdout(options.output.json ? json_text(inspection_json(inspection)) : report_text(inspection));
  return exit_code_of(inspection);
}

}  // namespace mererun
