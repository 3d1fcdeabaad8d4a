// `model list` and `model inspect` from outside, on the bundled models and on tiny checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/sha256.h"
#include "tests/cli/run_binary.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun::testing {

namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kSource = MERERUN_SOURCE_DIR;
const std::string kLayer3 = "language_model.model.layers.3.";

/// Every key of a document as a path, "models[].sources.target".
void collect_keys(const Json& value, const std::string& path, std::set<std::string>& keys) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      const std::string at = path.empty() ? key : path + "." + key;
      keys.insert(at);
      collect_keys(member, at, keys);
    }
  } else if (value.is_array()) {
    for (const Json& entry : value) collect_keys(entry, path + "[]", keys);
  }
}

std::set<std::string> keys_of(const Json& value) {
  std::set<std::string> keys;
  collect_keys(value, "", keys);
  return keys;
}

/// A tiny checkpoint with the bundled tokenizer, complete as a folder.
TinySpec small_spec(bool moe = false) {
  TinySpec spec = moe ? tiny_moe() : tiny_dense();
  spec.vocabulary = 8192;
  return spec;
}

void write_small(const fs::path& folder, const TinySpec& spec,
                 const std::function<void(TinyFiles&)>& change = {}) {
  TinyFiles files = make_tiny_checkpoint(spec);
  if (change) change(files);
  files.write(folder);
  const fs::path demo = kSource / "models" / "demo-dense-4bit";
  fs::copy_file(demo / "tokenizer.json", folder / "tokenizer.json");
  fs::copy_file(demo / "chat_template.jinja", folder / "chat_template.jinja");
}

RunResult inspect(const fs::path& folder, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"model", "inspect", "-m", folder.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_binary(arguments);
}

/// The report of an inspection that may have found problems.
Json report_of(const RunResult& result) {
  const Json report = Json::parse(result.output, nullptr, false);
  EXPECT_FALSE(report.is_discarded()) << result.output << result.errors;
  return report;
}

std::vector<std::string> problems_of(const RunResult& result) {
  return report_of(result)["problems"].get<std::vector<std::string>>();
}

TEST(ModelList, JsonHasTheKeysOfTheContract) {
  const auto result = run_binary({"model", "list", "--json"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.errors, "");
  const Json report = report_of(result);
  const std::string m = "models[].";
  EXPECT_EQ(keys_of(report), (std::set<std::string>{"models",
                                                    m + "id",
                                                    m + "installed",
                                                    m + "path",
                                                    m + "family",
                                                    m + "bits",
                                                    m + "groupSize",
                                                    m + "dtype",
                                                    m + "bytes",
                                                    m + "mtpDefault",
                                                    m + "promptThreshold",
                                                    m + "headFound",
                                                    m + "blockSize",
                                                    m + "blockSizeCap",
                                                    m + "verifyWidthMax",
                                                    m + "contextDefault",
                                                    m + "qualification",
                                                    m + "sources",
                                                    m + "sources.target",
                                                    m + "sources.mtp"}));
  ASSERT_EQ(report["models"].size(), 2u);
  const Json& dense = report["models"][0];
  EXPECT_EQ(dense["id"], "demo-dense-4bit");
  EXPECT_EQ(dense["installed"], true);
  EXPECT_EQ(dense["bits"], 4);
  EXPECT_EQ(dense["groupSize"], 64);
  EXPECT_EQ(dense["dtype"], "U32");
  EXPECT_EQ(dense["headFound"], true);
  EXPECT_EQ(dense["blockSize"], 8);
  EXPECT_EQ(dense["blockSizeCap"], 9);
  EXPECT_EQ(dense["contextDefault"], 16384);
  const fs::path folder = dense["path"].get<std::string>();
  EXPECT_EQ(dense["bytes"],
            fs::file_size(folder / "model.safetensors") + fs::file_size(folder / "mtp/model.safetensors"));
}

TEST(ModelList, AllAddsTheKnownIdsThatAreAbsent) {
  const Json report = report_of(run_binary({"model", "list", "--all", "--json"}));
  ASSERT_EQ(report["models"].size(), 15u);
  for (const Json& model : report["models"]) {
    const bool bundled = model["id"].get<std::string>().starts_with("demo-");
    EXPECT_EQ(model["installed"], bundled);
    EXPECT_EQ(model.contains("path"), bundled);
    EXPECT_EQ(model.contains("headFound"), bundled);
    EXPECT_EQ(model.contains("bytes"), bundled);
  }
  const Json& bf16 = report["models"][3];
  EXPECT_EQ(bf16["id"], "vision-chat-q38-27b");
  EXPECT_EQ(bf16["dtype"], "BF16");
  EXPECT_FALSE(bf16.contains("bits"));
  EXPECT_EQ(bf16["mtpDefault"], "opt-in");
  EXPECT_THAT(run_binary({"model", "list", "--all"}).output, HasSubstr("not installed; "));
}

TEST(ModelList, TextIsAnAlignedTable) {
  const std::string text = run_binary({"model", "list"}).output;
  EXPECT_THAT(text, StartsWith("id               family  weights      size  drafts     W  head  folder\n"
                               "demo-dense-4bit  dense   Q4 g64   20.7 MiB  on       8/9  yes   /"));
}

TEST(ModelList, StoresMayHoldOtherBrokenAndIncompleteFolders) {
  TempFolder store;
  write_small(store / "my-model", small_spec());
  write_small(store / "my-bf16", in_bf16(small_spec()),
              [](TinyFiles& f) { f.weights.erase("mtp/model.safetensors"); });
  write_small(store / "broken", small_spec(),
              [](TinyFiles& f) { f.erase(kLayer3 + "self_attn.o_proj.weight"); });
  fs::create_directories(store / "demo-dense-4bit");
  write_file(store / "demo-dense-4bit/config.json", "{}");
  const auto result =
      run_binary({"model", "list", "--json"}, "", {"MERERUN_MODELS=" + store.path().string()});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.errors,
              HasSubstr("demo-dense-4bit is incomplete: it lacks tokenizer.json, *.safetensors"));
  EXPECT_THAT(result.errors, HasSubstr("self_attn.o_proj.weight: expected"));
  const Json models = report_of(result)["models"];
  ASSERT_EQ(models.size(), 5u);
  EXPECT_EQ(models[0]["id"], "demo-dense-4bit") << "the bundled one, behind the incomplete one";
  EXPECT_EQ(models[2]["id"], "local:broken");
  EXPECT_FALSE(models[2].contains("headFound"));
  EXPECT_EQ(models[3]["id"], "local:my-bf16");
  EXPECT_EQ(models[3]["dtype"], "BF16");
  EXPECT_EQ(models[3]["headFound"], false);
  EXPECT_EQ(models[4]["id"], "local:my-model");
  EXPECT_EQ(models[4]["contextDefault"], 4096) << "max_position_embeddings of the folder";
}

std::set<std::string> inspect_keys() {
  std::set<std::string> keys{"id",      "path",      "fingerprint", "family",        "config",
                             "tensors", "head",      "norms",       "template",      "tokenizer",
                             "memory",  "exactness", "problems",    "qualification", "sources"};
  const auto add = [&](const std::string& parent, std::vector<std::string> names) {
    for (const std::string& name : names) keys.insert(parent + "." + name);
  };
  add("config", {"layers", "linearLayers", "fullLayers", "hidden", "vocabulary", "heads", "kvHeads",
                 "headDim", "experts", "expertsPerToken", "contextMax"});
  add("tensors", {"count", "bytes", "groups"});
  add("tensors.groups[]", {"name", "count", "dtype", "bits", "groupSize", "bytes"});
  add("head", {"found", "path", "dtype", "bits", "groupSize", "shortlist"});
  add("norms", {"trunk", "head"});
  add("template", {"sha256", "file"});
  add("tokenizer", {"sha256", "vocabulary"});
  add("memory[]", {"context", "weightsBytes", "arenaBytes", "stateBytes", "kvBytes", "totalBytes"});
  add("exactness", {"levels", "contractVersion", "backend"});
  add("sources", {"target", "mtp"});
  return keys;
}

TEST(ModelInspect, JsonHasTheKeysOfTheContract) {
  const auto result = run_binary({"model", "inspect", "--model", "demo-moe-4bit", "--json"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.errors, "");
  const Json report = report_of(result);
  EXPECT_EQ(keys_of(report), inspect_keys());

  const auto dense = report_of(run_binary({"model", "inspect", "--json"}));
  std::set<std::string> dense_keys = inspect_keys();
  dense_keys.erase("config.experts");
  dense_keys.erase("config.expertsPerToken");
  EXPECT_EQ(keys_of(dense), dense_keys);
  EXPECT_EQ(dense["id"], "demo-dense-4bit");
}

TEST(ModelInspect, JsonDescribesTheBundledMixtureOfExperts) {
  const Json report = report_of(run_binary({"model", "inspect", "--model", "demo-moe-4bit", "--json"}));
  EXPECT_EQ(report["config"]["linearLayers"], 6);
  EXPECT_EQ(report["config"]["fullLayers"], 2);
  EXPECT_EQ(report["config"]["experts"], 32);
  EXPECT_EQ(report["config"]["expertsPerToken"], 4);
  EXPECT_EQ(report["head"]["bits"], 4);
  EXPECT_EQ(report["head"]["shortlist"], false);
  EXPECT_EQ(report["norms"], (Json{{"trunk", "final"}, {"head", "final"}}));
  EXPECT_EQ(report["fingerprint"].get<std::string>().size(), 64u);
  EXPECT_EQ(report["exactness"]["contractVersion"], 1);
  EXPECT_EQ(report["template"]["file"], "chat_template.jinja");
  EXPECT_EQ(report["problems"], Json::array());
  EXPECT_THAT(report["tensors"]["groups"], Contains(Json{{"name", "mlp.gate"},
                                                         {"count", 8},
                                                         {"dtype", "U32"},
                                                         {"bits", 8},
                                                         {"groupSize", 64},
                                                         {"bytes", 8 * 32 * (384 + 384 / 64 * 4)}}));
  ASSERT_EQ(report["memory"].size(), 3u);
  EXPECT_EQ(report["memory"][0]["context"], 4096);
  EXPECT_EQ(report["memory"][1]["context"], 16384);
  EXPECT_EQ(report["memory"][2]["context"], 32768);
  for (const Json& need : report["memory"]) {
    EXPECT_EQ(need["totalBytes"],
              need["weightsBytes"].get<std::uint64_t>() + need["arenaBytes"].get<std::uint64_t>() +
                  need["stateBytes"].get<std::uint64_t>() + need["kvBytes"].get<std::uint64_t>());
  }
}

TEST(ModelInspect, TextIsForPeople) {
  const auto result = run_binary({"model", "inspect", "--model", "demo-dense-4bit"});
  EXPECT_EQ(result.status, 0);
  for (const char* line :
       {"model          demo-dense-4bit (dense, Q4 g64)\n",
        "layers         8: 6 linear (Gated DeltaNet), 2 full attention\n",
        "context        16,384 by default, 32,768 at most\n", "norms          trunk final, head final\n",
        "(mtp-folder), Q4 g64, proposes every id, no shortlist matrix\n", "qualification  none\n",
        "  self_attn.q_proj                         2  Q4 g64      1,179,648\n",
        "  context   weights     arena    state"}) {
    EXPECT_THAT(result.output, HasSubstr(line));
  }
  EXPECT_THAT(result.output, Not(HasSubstr("problems")));
}

TEST(ModelInspect, ListsEveryTensorOnRequest) {
  const Json report = report_of(run_binary({"model", "inspect", "--tensors", "--json"}));
  EXPECT_EQ(report["tensors"]["list"].size(), report["tensors"]["count"]);
  EXPECT_THAT(report["tensors"]["list"], Contains(Json{{"name", "mtp.fc.weight"},
                                                       {"dtype", "U32"},
                                                       {"shape", {512, 1024 * 4 / 32}},
                                                       {"bytes", 512 * 1024 / 2},
                                                       {"file", "mtp/model.safetensors"}}));
  EXPECT_THAT(run_binary({"model", "inspect", "--tensors"}).output, HasSubstr("  mtp.fc.weight "));
}

TEST(ModelInspect, NamesSourcesOfTheManifest) {
  TempFolder folder;
  write_small(folder.path(), small_spec());
  write_file(
      folder / "mererun.json",
      R"({"format": 1, "target": {"repository": "a/b", "revision": "abc"}, "mtp": {"repository": "c/d"}})");
  const Json report = report_of(inspect(folder.path(), {"--json"}));
  EXPECT_EQ(report["sources"], (Json{{"target", {{"repository", "a/b"}, {"revision", "abc"}}},
                                     {"mtp", {{"repository", "c/d"}, {"revision", nullptr}}}}));
  EXPECT_THAT(inspect(folder.path()).output,
              AllOf(HasSubstr("source         a/b at abc\n"), HasSubstr("head source    c/d\n")));
}

TEST(ModelInspect, RefusesAnUnknownModelWithFoldersAndNearestIds) {
  const auto result = run_binary({"model", "inspect", "--model", "demo-dens-4bit"}, "",
                                 {"MERERUN_MODELS=/nonexistent/store", "HOME=/nonexistent"});
  EXPECT_EQ(result.status, 66);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.errors,
              AllOf(StartsWith("mere.run: error: --model demo-dens-4bit: expected a known id or a folder"),
                    HasSubstr("/nonexistent/store/demo-dens-4bit"),
                    HasSubstr("/nonexistent/.local/share/mere.run/models/demo-dens-4bit"),
                    HasSubstr("hint: the nearest known ids are demo-dense-4bit")));
  EXPECT_EQ(inspect("/nonexistent/folder").status, 66);
}

TEST(ModelInspect, RefusesARequestThatContradictsTheFolder) {
  const auto result = inspect(kSource / "models/demo-dense-4bit", {"--model", "demo-moe-4bit"});
  EXPECT_EQ(result.status, 64);
  EXPECT_THAT(result.errors, HasSubstr("expected the moe family of demo-moe-4bit"));
  EXPECT_EQ(run_binary({"model", "inspect", "--backend", "nonsense"}).status, 64);
}

TEST(ModelInspect, PrintsWhatItCanOfABrokenCheckpoint) {
  TempFolder folder;
  write_small(folder.path(), small_spec(), [](TinyFiles& f) {
    f.erase(kLayer3 + "post_attention_layernorm.weight");
    f.tensor(kLayer3 + "self_attn.q_norm.weight").shape = {2, 16};
  });
  const auto text = inspect(folder.path());
  EXPECT_EQ(text.status, 65);
  EXPECT_THAT(text.output,
              AllOf(HasSubstr("layers         4: 3 linear"), HasSubstr("  self_attn.q_proj.weight "),
                    HasSubstr("\nproblems\n"), HasSubstr("layers.3.post_attention_layernorm.weight")));
  EXPECT_THAT(text.errors, HasSubstr("expected a sound checkpoint, got 2 problems (listed above)"));

  const auto json = inspect(folder.path(), {"--json"});
  EXPECT_EQ(json.status, 65);
  EXPECT_THAT(problems_of(json),
              UnorderedElementsAre(HasSubstr("layers.3.post_attention_layernorm.weight: expected"),
                                   HasSubstr("self_attn.q_norm.weight: expected")));
  const Json report = report_of(json);
  EXPECT_EQ(report["config"]["layers"], 4);
  EXPECT_EQ(report["tokenizer"]["vocabulary"], 8175);
  EXPECT_GT(report["tensors"]["count"], 100);
  EXPECT_FALSE(report.contains("fingerprint"));
}

TEST(ModelInspect, CountsProblemsBeyondTwenty) {
  TempFolder folder;
  write_small(folder.path(), small_spec(), [](TinyFiles& f) {
    for (int i = 0; i < 23; ++i)
      f.weights["model.safetensors"].push_back({"extra." + std::to_string(i), DType::kU8, {1}, "x"});
  });
  const auto text = inspect(folder.path());
  EXPECT_EQ(text.status, 65);
  EXPECT_THAT(text.output, HasSubstr("\n  and 3 more\n"));
  EXPECT_EQ(problems_of(inspect(folder.path(), {"--json"})).size(), 23u);
}

TEST(ModelInspect, NamesFilesThatAreCutOrNoJsonOrMissing) {
  TempFolder folder;
  write_small(folder / "cut", small_spec());
  fs::resize_file(folder / "cut/model.safetensors", fs::file_size(folder / "cut/model.safetensors") - 100);
  const auto cut = inspect(folder / "cut", {"--json"});
  EXPECT_EQ(cut.status, 65);
  EXPECT_THAT(problems_of(cut), ElementsAre(HasSubstr("model.safetensors")));
  EXPECT_EQ(report_of(cut)["config"]["hidden"], 128);

  write_small(folder / "config", small_spec());
  write_file(folder / "config/config.json", "{\"model_type\": ");
  const auto config = inspect(folder / "config", {"--json"});
  EXPECT_EQ(config.status, 65);
  EXPECT_THAT(problems_of(config), ElementsAre(HasSubstr("config.json")));
  EXPECT_FALSE(report_of(config).contains("config"));
  EXPECT_GT(report_of(config)["tensors"]["count"], 100);

  write_small(folder / "tokenizer", small_spec());
  fs::remove(folder / "tokenizer/tokenizer.json");
  const auto tokenizer = inspect(folder / "tokenizer", {"--json"});
  EXPECT_EQ(tokenizer.status, 65);
  EXPECT_THAT(problems_of(tokenizer), ElementsAre(HasSubstr("one without tokenizer.json")));
  EXPECT_EQ(report_of(tokenizer)["norms"]["trunk"], "final");

  write_small(folder / "shard", small_spec());
  write_file(folder / "shard/model.safetensors.index.json",
             R"({"weight_map": {"a.weight": "model-00002-of-00002.safetensors"}})");
  const auto shard = inspect(folder / "shard", {"--json"});
  EXPECT_EQ(shard.status, 65);
  EXPECT_THAT(problems_of(shard), ElementsAre(HasSubstr("model-00002-of-00002.safetensors")));
}

TEST(ModelInspect, ComparesTokenizerAndVocabulary) {
  TempFolder folder;
  TinySpec spec = small_spec();
  spec.vocabulary = 8160;
  write_small(folder.path(), spec);
  const auto result = inspect(folder.path(), {"--json"});
  EXPECT_EQ(result.status, 65);
  EXPECT_THAT(
      problems_of(result),
      ElementsAre(HasSubstr("tokenizer.json: expected ids below 8160 (vocab_size of config.json), got "
                            "ids up to 8174")));
}

TEST(ModelInspect, SaysThatAFamilyIsNotServed) {
  TempFolder folder;
  write_small(folder.path(), small_spec(true), [](TinyFiles& f) {
    Json config = Json::parse(f.texts.at("config.json"));
    Json& text = config.contains("text_config") ? config["text_config"] : config;
    text.update({{"hc_count", 4}, {"hc_lowrank", 32}, {"indexer_n_heads", 4}});
    config["model_type"] = "qwen3_6_other";
    f.texts["config.json"] = config.dump();
  });
  const auto result = inspect(folder.path(), {"--json"});
  EXPECT_EQ(result.status, 69);
  EXPECT_THAT(problems_of(result), ElementsAre(HasSubstr("qwen3_6_other")));
  EXPECT_GT(report_of(result)["tensors"]["count"], 100);
}

TEST(ModelInspect, VerifyFindsAPlantedNan) {
  TempFolder folder;
  const std::string scales = kLayer3 + "mlp.down_proj.scales";
  write_small(folder.path(), small_spec(), [&](TinyFiles& f) {
    const std::uint16_t nan = 0x7fc1;
    std::memcpy(f.tensor(scales).data.data() + 2 * 5, &nan, sizeof(nan));
  });
  EXPECT_EQ(inspect(folder.path(), {"--json"}).status, 0) << "headers alone are sound";
  const auto result = inspect(folder.path(), {"--verify", "--json"});
  EXPECT_EQ(result.status, 65);
  EXPECT_THAT(problems_of(result), ElementsAre(scales + ": expected finite numbers, got NaN or infinity at "
                                                        "element 5 in model.safetensors"));
  const Json report = report_of(result);
  EXPECT_EQ(report["verified"]["tensors"], report["tensors"]["count"]);
}

TEST(ModelInspect, ChecksumsAreComparedWithTheManifest) {
  TempFolder folder;
  write_small(folder.path(), small_spec());
  const auto none = inspect(folder.path(), {"--checksums", "--json"});
  EXPECT_EQ(none.status, 65);
  EXPECT_THAT(problems_of(none), ElementsAre(HasSubstr("mererun.json: expected a list of files to compare")));

  const auto stated = [](const std::string& path, const std::string& bytes) {
    return Json{{"path", path}, {"bytes", bytes.size()}, {"sha256", sha256_hex(bytes)}};
  };
  write_file(folder / "a.txt", "one");
  write_file(folder / "b.txt", "two");
  Json manifest{{"format", 1}, {"files", {stated("a.txt", "one"), stated("b.txt", "two")}}};
  write_file(folder / "mererun.json", manifest.dump());
  const auto right = inspect(folder.path(), {"--checksums", "--json"});
  EXPECT_EQ(right.status, 0) << right.errors;
  EXPECT_EQ(report_of(right)["checksums"]["matched"], 2);

  manifest["files"].push_back(stated("c.txt", "three"));
  write_file(folder / "mererun.json", manifest.dump());
  write_file(folder / "a.txt", "onE");
  write_file(folder / "b.txt", "twoo");
  const auto wrong = inspect(folder.path(), {"--checksums", "--json"});
  EXPECT_EQ(wrong.status, 65);
  EXPECT_THAT(problems_of(wrong),
              ElementsAre(HasSubstr("a.txt: expected SHA-256 " + sha256_hex(std::string_view("one"))),
                          HasSubstr("b.txt: expected 3 bytes (mererun.json), got 4"),
                          HasSubstr("c.txt: expected a file of 5 bytes (mererun.json), got no such file")));
  EXPECT_EQ(inspect(folder.path()).status, 0) << "files are read only on request";
}

TEST(ModelInspect, DescribesEveryExpertLayoutAlike) {
  TempFolder folder;
  std::vector<Json> groups;
  for (const TinyExperts layout :
       {TinyExperts::kStacked, TinyExperts::kFused, TinyExperts::kTransposed, TinyExperts::kPerExpert}) {
    TinySpec spec = in_bf16(small_spec(true));
    spec.expert_layout = layout;
    const fs::path at = folder / std::to_string(groups.size());
    write_small(at, spec);
    const auto result = inspect(at, {"--json"});
    EXPECT_EQ(result.status, 0) << result.errors << result.output;
    groups.push_back(report_of(result)["tensors"]["groups"]);
  }
  EXPECT_THAT(groups, Each(groups.front()));
}

TEST(ModelCommands, VariablesThatTheBenchmarkClearsHaveNoEffect) {
  const RunResult result =
      run_binary({"model", "benchmark", "q36-mtp", "--synthetic", "small-flash", "--prompt-repeat", "1",
                  "--decode-tokens", "4", "--warmups", "0", "--variants", "baseline,adaptive", "--json"},
                 "",
                 {"MERERUN_Q35_MTP_SPECULATION=off", "MERERUN_Q35_MTP_BLOCK_SIZE=3",
                  "MERERUN_Q35_MTP_MIN_PROMPT_TOKENS=9000", "MERERUN_Q35_MTP_STREAM_HISTORY=0",
                  "MERERUN_Q35_MTP_HEAD_COST_RATIO=1", "MERERUN_Q35_PREFIX_KV_CACHE=1",
                  "MERERUN_PREFIX_CACHE_BYTES=1000000", "MERERUN_Q35_CONTINUOUS_BATCHING=1"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const Json report = Json::parse(result.output);
  ASSERT_EQ(report["overrides"].size(), 8U);
  for (const Json& o : report["overrides"]) EXPECT_EQ(o["effect"], "no-effect") << o["name"];
  const Json& acceleration = report["scenarios"][0]["variants"][1]["acceleration"];
  EXPECT_EQ(acceleration["admissionReason"], "default");
  EXPECT_EQ(acceleration["blockSize"], 4);
  EXPECT_EQ(acceleration["historyMode"], "streaming");
}

}  // namespace

}  // namespace mererun::testing
