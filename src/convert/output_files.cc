#include "convert/output_files.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace mererun {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

OrderedJson source_json(const RepositoryRevision& source) {
  OrderedJson json{{"repository", source.repository}};
  if (!source.revision.empty()) json["revision"] = source.revision;
  return json;
}

OrderedJson quantisation(const ConversionPlan& plan, AffineFormat main) {
  OrderedJson json{{"group_size", main.group}, {"bits", main.bits}, {"mode", "affine"}};
  for (const PlannedShard& shard : plan.shards) {
    if (shard.file.starts_with("mtp/")) continue;  // its shapes say it
    for (const PlannedTensor& tensor : shard.tensors) {
      if (tensor.format && *tensor.format != main)
        json[tensor.name] = {{"group_size", tensor.format->group}, {"bits", tensor.format->bits}};
    }
  }
  return json;
}

}  // namespace

std::string output_config(std::string_view source_config, const ConversionPlan& plan, AffineFormat main) {
  OrderedJson config = OrderedJson::parse(source_config);
  for (const char* key : {"quantization", "quantization_config", "vision_config"}) config.erase(key);
  const OrderedJson quantised = quantisation(plan, main);
  config["quantization"] = quantised;
  config["quantization_config"] = quantised;
  return config.dump(2) + "\n";
}

std::string output_index(const ConversionPlan& plan) {
  std::uint64_t bytes = 0;
  OrderedJson map = OrderedJson::object();
  for (const PlannedShard& shard : plan.shards) {
    if (shard.file.starts_with("mtp/")) continue;
    for (const PlannedTensor& tensor : shard.tensors) {
      bytes += tensor.bytes();
      if (!tensor.format) {
        map[tensor.name] = shard.file;
        continue;
      }
      for (const char* part : {".weight", ".scales", ".biases"}) map[tensor.name + part] = shard.file;
    }
  }
  return OrderedJson{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump(2) + "\n";
}

std::string output_manifest(const ConversionPlan& plan, const std::string& id,
                            const std::optional<ModelManifest>& source, bool norms_are_final,
                            const std::vector<ModelManifest::File>& files) {
  OrderedJson json{{"format", 1}};
  if (!id.empty()) json["id"] = id;
  if (source && !source->target.empty()) json["target"] = source_json(source->target);
  if (source && !source->mtp.empty()) json["mtp"] = source_json(source->mtp);
  if (norms_are_final) {
    json["norm_convention"] = "final";
    if (plan.has_head) json["mtp_norm_convention"] = "final";
  }
  if (source && source->draft_vocabulary) {
    for (const TokenRange& range : *source->draft_vocabulary)
      json["draft_vocabulary"].push_back({range.first, range.last});
  }
  if (source && source->expects_retrieval) json["expects_retrieval"] = *source->expects_retrieval;
  json["files"] = OrderedJson::array();
  for (const ModelManifest::File& file : files)
    json["files"].push_back({{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  return json.dump(2) + "\n";
}

std::vector<fs::path> companion_files(const fs::path& source) {
  static constexpr std::array kNames = {"LICENSE",
                                        "LICENSE.txt",
                                        "NOTICE",
                                        "added_tokens.json",
                                        "chat_template.json",
                                        "chat_template.jinja",
                                        "generation_config.json",
                                        "merges.txt",
                                        "special_tokens_map.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "vocab.json"};
  std::vector<fs::path> files;
  for (const char* name : kNames) {
    if (fs::is_regular_file(source / name)) files.push_back(source / name);
  }
  return files;
}

}  // namespace mererun
