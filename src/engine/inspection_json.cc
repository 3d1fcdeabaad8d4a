#include <nlohmann/json.hpp>

#include "engine/model_inspection.h"
#include "engine/model_listing.h"

namespace mererun {
namespace {

using Json = nlohmann::json;

Json config_json(const ModelConfig& c) {
  Json out{{"layers", c.layers},
           {"linearLayers", c.count(LayerKind::kDeltaNet)},
           {"fullLayers", c.count(LayerKind::kAttention)},
           {"hidden", c.hidden},
           {"vocabulary", c.vocabulary},
           {"heads", c.heads},
           {"kvHeads", c.kv_heads},
           {"headDim", c.head_dim},
           {"contextMax", c.max_positions}};
  if (c.is_moe()) {
    out["experts"] = c.experts;
    out["expertsPerToken"] = c.experts_per_token;
  }
  if (c.flash) {
    out["streams"] = c.flash->streams;
    out["attentionBudget"] = c.flash->indexer_budget;
    out["indexHeads"] = c.flash->indexer_heads;
    out["ngramHeads"] = c.flash->has_ngrams() ? c.flash->ngram_heads() : 0;
  }
  return out;
}

void add_precision(Json& out, int bits, int group) {
  if (bits > 0) out["bits"] = bits;
  if (group > 0) out["groupSize"] = group;
}

Json tensors_json(const Inspection& inspection) {
  Json groups = Json::array();
  for (const TensorGroup& group : inspection.groups) {
    Json one{{"name", group.name},
             {"count", group.count},
             {"dtype", std::string(name_of(group.dtype))},
             {"bytes", group.bytes}};
    add_precision(one, group.bits, group.group);
    groups.push_back(std::move(one));
  }
  Json out{
      {"count", inspection.tensor_count}, {"bytes", inspection.tensor_bytes}, {"groups", std::move(groups)}};
  if (inspection.tensors.empty()) return out;
  Json list = Json::array();
  for (const InspectedTensor& t : inspection.tensors)
    list.push_back(
        {{"name", t.name}, {"dtype", t.dtype}, {"shape", t.shape}, {"bytes", t.bytes}, {"file", t.file}});
  out["list"] = std::move(list);
  return out;
}

Json head_json(const Inspection& inspection) {
  Json out{{"found", inspection.head.has_value()}};
  if (!inspection.head) return out;
  const InspectedHead& head = *inspection.head;
  out["path"] = head.path.string();
  out["dtype"] = head.dtype;
  add_precision(out, head.bits, head.group);
  if (head.vocabulary_rows) out["draftVocabularyRows"] = *head.vocabulary_rows;
  out["shortlist"] = head.shortlist;
  return out;
}

Json memory_json(const std::vector<MemoryNeed>& memory) {
  Json out = Json::array();
  for (const MemoryNeed& need : memory) {
    Json part{{"context", need.context},  {"weightsBytes", need.weights}, {"arenaBytes", need.arena},
              {"stateBytes", need.state}, {"kvBytes", need.kv},           {"totalBytes", need.total()}};
    if (need.scratch > 0) part["scratchBytes"] = need.scratch;
    out.push_back(std::move(part));
  }
  return out;
}

}  // namespace

Json inspection_json(const Inspection& inspection) {
  Json out{{"id", inspection.id},
           {"path", inspection.folder.string()},
           {"family", std::string(name_of(inspection.traits.family))},
           {"tensors", tensors_json(inspection)},
           {"head", head_json(inspection)},
           {"memory", memory_json(inspection.memory)},
           {"exactness",
            {{"levels", inspection.exactness.levels},
             {"contractVersion", inspection.exactness.contract_version},
             {"backend", inspection.exactness.backend}}},
           {"qualification", inspection.qualification},
           {"sources", sources_json(inspection.target, inspection.mtp)},
           {"problems", inspection.problems}};
  if (!inspection.fingerprint.empty()) out["fingerprint"] = inspection.fingerprint;
  if (inspection.config) out["config"] = config_json(*inspection.config);
  if (inspection.trunk_norms) {
    out["norms"] = {{"trunk", std::string(name_of(*inspection.trunk_norms))}};
    if (inspection.head_norms) out["norms"]["head"] = std::string(name_of(*inspection.head_norms));
  }
  if (const auto& file = inspection.chat_template)
    out["template"] = {{"sha256", file->sha256}, {"file", file->name}};
  if (const auto& file = inspection.tokenizer)
    out["tokenizer"] = {{"sha256", file->sha256}, {"vocabulary", inspection.tokenizer_vocabulary}};
  if (inspection.checksums_matched) out["checksums"] = {{"matched", *inspection.checksums_matched}};
  if (inspection.verified_tensors) out["verified"] = {{"tensors", *inspection.verified_tensors}};
  return out;
}

}  // namespace mererun
