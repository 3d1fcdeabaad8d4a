#include "tokenizer/tokenizer_json.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "demo_tokenizer.h"

namespace mererun {
namespace {

using Json = nlohmann::json;
using testing::minimal_tokenizer_json;

struct Refusal {
  ErrorCode code;
  std::string message;
};

Refusal refusal_of(const std::string& text) {
  try {
    Tokenizer::from_json(text, "dir/tokenizer.json");
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::kInternal, "accepted"};
}

void expect_refused(const std::string& text, ErrorCode code, const std::string& key) {
  const Refusal refusal = refusal_of(text);
  EXPECT_EQ(refusal.code, code) << refusal.message;
  EXPECT_NE(refusal.message.find("dir/tokenizer.json: " + key), std::string::npos) << refusal.message;
}

/// Refusal of the minimal file with `value` written at `pointer`.
void expect_refused_with(const char* pointer, const Json& value, ErrorCode code, const std::string& key) {
  Json json = minimal_tokenizer_json();
  json[Json::json_pointer(pointer)] = value;
  expect_refused(json.dump(), code, key);
}

void expect_accepted_with(const char* pointer, const Json& value) {
  Json json = minimal_tokenizer_json();
  json[Json::json_pointer(pointer)] = value;
  EXPECT_EQ(refusal_of(json.dump()).message, "accepted") << pointer;
}

TEST(TokenizerJson, MinimalFileLoads) {
  const auto tokenizer = Tokenizer::from_json(minimal_tokenizer_json().dump(), "test");
  EXPECT_EQ(tokenizer->vocabulary_size(), 257);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("é<s>")), "é<s>");
  EXPECT_EQ(tokenizer->encode("é<s>").size(), 3u);
}

TEST(TokenizerJson, MergesAsStringsAndAsPairsAreTheSame) {
  Json json = minimal_tokenizer_json();
  json["model"]["vocab"]["ab"] = 300;
  json["model"]["merges"] = {"a b"};
  const auto strings = Tokenizer::from_json(json.dump(), "test");
  json["model"]["merges"] = Json::array({Json::array({"a", "b"})});
  const auto pairs = Tokenizer::from_json(json.dump(), "test");
  EXPECT_EQ(strings->encode("abab"), (std::vector<TokenId>{300, 300}));
  EXPECT_EQ(pairs->encode("abab"), (std::vector<TokenId>{300, 300}));
}

TEST(TokenizerJson, OrderOfKeysDoesNotMatter) {
  Json json = minimal_tokenizer_json();
  json["model"]["vocab"]["ab"] = 300;
  const std::string vocab = json["model"]["vocab"].dump();
  json.erase("model");
  std::string text = json.dump();
  text.pop_back();
  text += R"(,"model":{"merges":["a b"],"vocab":)" + vocab + R"(,"type":"BPE"}})";
  EXPECT_EQ(Tokenizer::from_json(text, "test")->encode("ab"), (std::vector<TokenId>{300}));
}

TEST(TokenizerJson, SettingsWithoutEffectAreAccepted) {
  expect_accepted_with("/truncation", {{"max_length", 8}});
  expect_accepted_with("/padding", {{"pad_id", 3}});
  expect_accepted_with("/normalizer", nullptr);
  expect_accepted_with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}});
  expect_accepted_with("/post_processor", {{"type", "ByteLevel"}, {"trim_offsets", false}});
  expect_accepted_with("/model/dropout", 0.0);
  expect_accepted_with("/model/continuing_subword_prefix", "");
  expect_accepted_with("/model/ignore_merges", false);
  expect_accepted_with("/added_tokens", nullptr);
  expect_accepted_with("/model/fuse_unk", true);  // there is no unknown token to fuse
}

TEST(TokenizerJson, UnsupportedSettingsAreNamed) {
  const ErrorCode code = ErrorCode::kUnsupported;
  expect_refused_with("/model/type", "Unigram", code, "model.type: expected \"BPE\", got \"Unigram\"");
  expect_refused_with("/model/dropout", 0.1, code, "model.dropout");
  expect_refused_with("/model/unk_token", "<unk>", code, "model.unk_token");
  expect_refused_with("/model/continuing_subword_prefix", "##", code, "model.continuing_subword_prefix");
  expect_refused_with("/model/end_of_word_suffix", "</w>", code, "model.end_of_word_suffix");
  expect_refused_with("/model/byte_fallback", true, code, "model.byte_fallback");
  expect_refused_with("/model/ignore_merges", true, code, "model.ignore_merges");
  expect_refused_with("/normalizer", {{"type", "Lowercase"}}, code, "normalizer");
  expect_refused_with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}}}}, code,
                      "normalizer");
  expect_refused_with("/pre_tokenizer", {{"type", "Whitespace"}}, code, "pre_tokenizer.type");
  expect_refused_with("/pre_tokenizer/pretokenizers", Json::array(), code, "pre_tokenizer.pretokenizers");
  expect_refused_with("/pre_tokenizer/pretokenizers/0/behavior", "Removed", code,
                      "pre_tokenizer.pretokenizers[0].behavior");
  expect_refused_with("/pre_tokenizer/pretokenizers/0/invert", true, code,
                      "pre_tokenizer.pretokenizers[0].invert");
  expect_refused_with("/pre_tokenizer/pretokenizers/0/pattern", {{"String", " "}}, code,
                      "pre_tokenizer.pretokenizers[0].pattern.Regex");
  expect_refused_with("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+", code,
                      "pre_tokenizer.pretokenizers[0].pattern.Regex");
  expect_refused_with("/pre_tokenizer/pretokenizers/1/add_prefix_space", true, code,
                      "pre_tokenizer.pretokenizers[1].add_prefix_space");
  expect_refused_with("/pre_tokenizer/pretokenizers/1/use_regex", true, code,
                      "pre_tokenizer.pretokenizers[1].use_regex");
  expect_refused_with("/decoder", nullptr, code, "decoder.type");
  expect_refused_with("/post_processor", {{"type", "TemplateProcessing"}}, code, "post_processor.type");
  for (const std::string flag : {"lstrip", "rstrip", "single_word", "normalized"}) {
    expect_refused_with(("/added_tokens/0/" + flag).c_str(), true, code, "added_tokens[0]." + flag);
  }
  expect_refused_with("/model/vocab/a b", 300, code, "model.vocab");
}

TEST(TokenizerJson, ContradictionsAreNamed) {
  const ErrorCode code = ErrorCode::kCorruptData;
  expect_refused_with("/model", "BPE", code, "model.vocab");
  expect_refused_with("/model/vocab", Json::array(), code, "model.vocab");
  expect_refused_with("/model/vocab", Json::object(), code,
                      "model.vocab: expected a token for each of the 256 bytes");
  expect_refused_with("/model/vocab/a", -1, code, "model.vocab[\"a\"]");
  expect_refused_with("/model/vocab/a", 1.5, code, "model.vocab[\"a\"]");
  expect_refused_with("/model/vocab/a", "x", code, "model.vocab[\"a\"]");
  expect_refused_with("/model/vocab/a", 4194304, code, "model.vocab[\"a\"]");
  expect_refused_with("/model/vocab/a", Json::object(), code, "model.vocab[\"a\"]");
  expect_refused_with("/model/vocab/ab", 5, code,
                      "model.vocab: expected ids that occur once, got id 5 twice");
  expect_refused_with("/model/vocab/", 300, code, "model.vocab: expected non-empty keys");
  expect_refused_with("/model/merges", nullptr, code, "model.merges");
  expect_refused_with("/model/merges", {"ab"}, code, "model.merges[0]");
  expect_refused_with("/model/merges", {"a b"}, code,
                      "model.merges[0]: expected parts and result in model.vocab");
  expect_refused_with("/model/merges", {"a b c"}, code, "model.merges[0]");
  expect_refused_with("/model/merges", {" b"}, code, "model.merges[0]");
  expect_refused_with("/model/merges", {7}, code, "model.merges[0]");
  expect_refused_with("/model/merges", Json::array({Json::array({"a"})}), code, "model.merges[0]");
  expect_refused_with("/model/merges", Json::array({Json::array({"a", "b", "c"})}), code, "model.merges[0]");
  expect_refused_with("/model/merges", Json::array({Json::array({"a", Json::array({"b"})})}), code,
                      "model.merges[0]");
  expect_refused_with("/added_tokens", "x", code, "added_tokens");
  expect_refused_with("/added_tokens/0/id", 7, code, "added_tokens[0]");
  expect_refused_with("/added_tokens/0/id", -7, code, "added_tokens[0].id");
  expect_refused_with("/added_tokens/0/content", "", code, "added_tokens[0].content");
  expect_refused_with("/added_tokens/0/content", std::string(513, 'x'), code, "added_tokens[0].content");
  expect_refused_with("/added_tokens/0/content", "a", code, "added_tokens[0]");
  expect_refused_with("/added_tokens/0/special", "yes", code, "added_tokens[0].special");
  expect_refused_with("/added_tokens/1", {{"id", 256}, {"content", "<t>"}}, code, "added_tokens[1]");
  expect_refused_with("/added_tokens/1", {{"id", 257}, {"content", "<s>"}}, code, "added_tokens[1]");
}

TEST(TokenizerJson, AnAddedTokenMayAlsoStandInTheVocabulary) {
  Json json = minimal_tokenizer_json();
  json["model"]["vocab"]["<s>"] = 256;
  EXPECT_EQ(refusal_of(json.dump()).message, "accepted");
  json["added_tokens"][0]["content"] = "two words";  // a space is not in the byte alphabet
  json["model"]["vocab"].erase("<s>");
  json["model"]["vocab"]["two words"] = 256;
  EXPECT_EQ(refusal_of(json.dump()).message, "accepted");
}

TEST(TokenizerJson, KeysThatOccurTwiceAreRefused) {
  Json json = minimal_tokenizer_json();
  json["model"]["vocab"]["QQ"] = 300;
  json["model"]["vocab"]["QZ"] = 301;
  std::string text = json.dump();
  text.replace(text.find("\"QZ\""), 4, "\"QQ\"");
  expect_refused(text, ErrorCode::kCorruptData, "model.vocab: expected keys that occur once");
  for (const std::string key : {"model", "decoder"}) {
    Json other = minimal_tokenizer_json();
    other["zz"] = nullptr;
    std::string twice = other.dump();
    twice.replace(twice.find("\"zz\""), 4, "\"" + key + "\"");
    expect_refused(twice, ErrorCode::kCorruptData, key);
  }
}

TEST(TokenizerJson, EveryTruncationIsRefused) {
  const std::string text = minimal_tokenizer_json().dump();
  for (std::size_t size = 0; size < text.size(); size += 1 + size / 50) {
    const Refusal refusal = refusal_of(text.substr(0, size));
    EXPECT_EQ(refusal.code, ErrorCode::kCorruptData) << size;
    EXPECT_EQ(refusal.message.find("json.exception"), std::string::npos) << refusal.message;
  }
}

TEST(TokenizerJson, DocumentsOfAnotherShapeAreRefused) {
  for (const std::string text :
       {"null", "[]", "{}", "7", "\"model\"", "[{\"model\":{\"vocab\":{},\"merges\":[]}}]", "{\"model\":[]}",
        "{\"model\":{\"vocab\":{\"a\":[", "\xFF", "{\"a\":\"\xC3\"}"}) {
    expect_refused(text, ErrorCode::kCorruptData, "");
  }
  expect_refused(minimal_tokenizer_json().dump() + std::string("\0{", 2), ErrorCode::kCorruptData,
                 "byte 2762: expected JSON, got a NUL");
  expect_refused(std::string(100000, '['), ErrorCode::kCorruptData, "");
  std::string deep = "{\"a\":" + std::string(40, '[') + std::string(40, ']') + "}";
  expect_refused(deep, ErrorCode::kCorruptData, "a: expected nesting");
}

}  // namespace
}  // namespace mererun
