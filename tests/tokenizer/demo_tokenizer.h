#pragma once

#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace mererun::testing {

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string demo_tokenizer_path() {
  return MERERUN_SOURCE_DIR "/models/demo-dense-4bit/tokenizer.json";
}

/// The tokenizer of the bundled dense model, loaded once.
inline const std::shared_ptr<const Tokenizer>& demo_tokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::load(demo_tokenizer_path());
  return tokenizer;
}

inline nlohmann::json tokenizer_golden(const std::string& file) {
  return nlohmann::json::parse(read_text(MERERUN_BINARY_DIR "/golden/tokenizer/" + file));
}

/// A random well-formed text: mostly characters at which pre-tokenization and NFC have something to decide.
inline std::string random_text(std::mt19937& random, int characters) {
  static const std::u32string kPointed =
      U" \t\r\n'aAsStTdDmMrReEvVlLxyz019.,!?<|>"
      U"\u0301\u0323\u00e9\u00c5\u0130\u017f\u0085\u00a0\u180e\u2028\u3000"
      U"\u200d\u4e16\u3042\u0e31\u0e2a\u1100\u1161\u11a8\uac00\u0661\u2167\u00bd\u0345\ufeff\U0001f600"
      U"\U0001d7d8";
  const auto below = [&](std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(random);
  };
  std::string text;
  for (int i = 0; i < characters; ++i) {
    char32_t c = kPointed[below(static_cast<std::uint32_t>(kPointed.size()))];
    if (below(8) == 0) c = below(0x3000);
    if (below(16) == 0) c = below(0x110000);
    if (c >= 0xD800 && c < 0xE000) c = U'x';
    append_utf8(c, text);
  }
  return text;
}

/// A minimal tokenizer.json: the 256 single bytes as ids 0..255 in the order of the byte alphabet, no merges,
/// the Qwen pattern and one added token `<s>` with id 256. Tests change one thing in it.
inline nlohmann::json minimal_tokenizer_json() {
  nlohmann::json vocab = nlohmann::json::object();
  int id = 0;
  for (char32_t c = 0; c < 0x144; ++c) {
    const bool in_alphabet =
        (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255) || c >= 256;
    std::string key;
    append_utf8(c, key);
    if (in_alphabet) vocab[key] = id++;
  }
  const std::string pattern = nlohmann::json::parse(
      read_text(demo_tokenizer_path()))["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens",
       {{{"id", 256},
         {"content", "<s>"},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false},
         {"special", true}}}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
          {{"type", "ByteLevel"},
           {"add_prefix_space", false},
           {"trim_offsets", true},
           {"use_regex", false}}}}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
}

}  // namespace mererun::testing
