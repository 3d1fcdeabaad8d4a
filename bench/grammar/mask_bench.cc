// What a constraint costs for each token of a large vocabulary.
//
//   mask_bench [VOCABULARY]
//
// VOCABULARY is a file of lines "base64-bytes id" (tiktoken's form) and is padded to 248,320 ids; without it
// a made-up vocabulary of that size is used. Each form's answer is walked token by token, longest match
// first; a token's cost is mask() and accept(). "cold" is a constraint just compiled (it knows nothing),
// "warm" a clone of one that has seen such an answer; "applied" adds the sampler's greedy choice under the
// mask, "free" is that choice without one. One JSON object a line, the median and the least and largest of
// the rounds.
#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "decode/sampler.h"
#include "grammar/compile.h"

namespace {

using namespace mererun;
using Json = nlohmann::ordered_json;

constexpr std::size_t kVocabulary = 248'320;

std::string decode_base64(const std::string& text) {
  static const std::string kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0, count = 0;
  for (const char c : text) {
    const std::size_t value = kLetters.find(c);
    if (value == std::string::npos) break;
    bits = bits << 6 | static_cast<unsigned>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  return out;
}

std::vector<std::string> read_vocabulary(const char* path) {
  std::vector<std::string> tokens(kVocabulary);
  std::ifstream file(path);
  std::string text;
  std::size_t id = 0;
  while (file >> text >> id)
    if (id < tokens.size()) tokens[id] = decode_base64(text);
  return tokens;
}

/// Bytes, then words of letters of several scripts, with a space or punctuation around some.
std::vector<std::string> made_up_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  std::mt19937 random(1);
  const std::vector<std::string> letters = {"a", "b", "c", "d", "e", "i", "l", "m",  "n",  "o",
                                            "r", "s", "t", "u", "é", "ж", "и", "の", "東", "한"};
  const std::vector<std::string> before = {"", "", " ", " ", "_", "\"", "(", "\n", ".", "\t"};
  const std::vector<std::string> after = {"", "", "", "", "", "\"", "\":", "\",", "()", "\n"};
  while (tokens.size() < kVocabulary - 300) {
    std::string token = before[random() % before.size()];
    for (std::size_t n = 1 + random() % 8; n-- > 0;) token += letters[random() % letters.size()];
    tokens.push_back(token + after[random() % after.size()]);
  }
  tokens.resize(kVocabulary);
  return tokens;
}

/// Processor time of this thread: other programs on the machine do not count.
double now_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

double milliseconds(double from) { return now_ms() - from; }

struct Workload {
  std::string name;
  std::function<std::unique_ptr<TokenConstraint>(std::shared_ptr<const GrammarVocabulary>)> compile;
  std::string answer;
};

std::string prose(int words) {
  static const std::vector<std::string> kWords = {"the",   "measured", "result", "depends", "on",
                                                  "every", "row",      "of",     "a",       "table",
                                                  "that",  "nobody",   "reads",  "twice"};
  std::string text;
  for (int i = 0; i < words; ++i) text += (i ? " " : "") + kWords[static_cast<std::size_t>(i * 7 % 14)];
  return text;
}

std::vector<Workload> workloads() {
  Json people = Json::array();
  for (int i = 0; i < 12; ++i)
    people.push_back({{"name", "Person " + std::to_string(i)},
                      {"email", "p" + std::to_string(i) + "@example.org"},
                      {"age", 20 + i},
                      {"notes", prose(12)},
                      {"tags", {"a", "b-c"}}});
  const std::string list = Json{{"people", people}}.dump(2);
  const Json schema =
      Json::parse(R"({"type": "object", "properties": {"people": {"type": "array", "items": {"type":
    "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 80}, "email": {"type": "string",
    "format": "email"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "notes": {"type": "string",
    "maxLength": 500}, "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z-]+$"}, "maxItems": 9}},
    "required": ["name", "email", "age"]}}}, "required": ["people"]})");
  const Json tools =
      Json::parse(R"([{"name": "write", "parameters": {"properties": {"path": {"type": "string"},
    "text": {"type": "string"}, "mode": {"enum": ["new", "append"]}}, "required": ["path", "text"]}}])");
  const std::string call =
      "<tool_call>\n<function=write>\n<parameter=path>\nnotes/a.txt\n</parameter>\n"
      "<parameter=text>\n" +
      prose(150) + "\nif (a < b) { return 1; }\n" + prose(150) + "\n</parameter>\n</function>\n</tool_call>";
  std::string sums;
  for (int i = 0; i < 60; ++i) sums += "(12 + 3" + std::to_string(i) + ") * 4 - ";
  return {
      {"json_object", [](auto v) { return compile_json_object(v); }, list},
      {"json_schema", [schema](auto v) { return compile_json_schema(schema, v); }, list},
      {"free_text", [](auto v) { return compile_grammar("root ::= .{0,100000}", v); }, prose(300)},
      {"arithmetic",
       [](auto v) {
         return compile_grammar(
             "root ::= term (\" \"? [-+*/] \" \"? term)*\nterm ::= [0-9]+ | \"(\" root \")\"", v);
       },
       sums + "1"},
      {"tool_call", [tools](auto v) { return compile_tool_calls(tools, {}, v); }, call},
  };
}

/// Ids of a text, longest match first; what matches nothing is left out by the caller's choice of texts.
std::vector<TokenId> longest_matches(const GrammarVocabulary& vocabulary, const std::string& text) {
  std::unordered_map<std::string_view, TokenId> by_bytes;
  for (TokenId id = 0; id < vocabulary.size(); ++id)
    if (const auto bytes = vocabulary.grammar_bytes(id); !bytes.empty()) by_bytes.emplace(bytes, id);
  std::vector<TokenId> ids;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t size = std::min<std::size_t>(32, text.size() - at);
    while (size > 1 && !by_bytes.contains(std::string_view(text).substr(at, size))) --size;
    ids.push_back(by_bytes.at(std::string_view(text).substr(at, size)));
    at += size;
  }
  return ids;
}

struct Walk {
  double mean_ms = 0;
  double largest_ms = 0;
};

Walk walk(TokenConstraint& constraint, const std::vector<TokenId>& ids) {
  Walk result;
  for (const TokenId id : ids) {
    const auto begin = now_ms();
    const bool is_allowed = constraint.mask()->allows(id);
    constraint.accept(id);
    const double spent = milliseconds(begin);
    if (!is_allowed) throw std::runtime_error("the answer is not allowed");
    result.mean_ms += spent / static_cast<double>(ids.size());
    result.largest_ms = std::max(result.largest_ms, spent);
  }
  return result;
}

/// Mean of mask(), a greedy choice under it, and accept(); of the choice alone without a constraint.
double walk_applied(TokenConstraint* constraint, const std::vector<TokenId>& ids) {
  std::vector<float> logits(kVocabulary);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 1000) * 0.01f;
  SamplingOptions options;
  options.temperature = 0;
  Sampler sampler(options, {});
  const auto begin = now_ms();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    sampler.choose(logits, static_cast<Position>(i), constraint ? constraint->mask() : nullptr);
    if (constraint) constraint->accept(ids[i]);
  }
  return milliseconds(begin) / static_cast<double>(ids.size());
}

Json spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {{"median", values[values.size() / 2]}, {"min", values.front()}, {"max", values.back()}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> texts = argc > 1 ? read_vocabulary(argv[1]) : made_up_vocabulary();
  std::vector<GrammarVocabulary::Token> tokens;
  for (const std::string& text : texts) tokens.push_back({text, false});
  const auto begin = now_ms();
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(
      tokens, std::vector<TokenId>{static_cast<TokenId>(kVocabulary - 1)});
  std::cout << Json{{"vocabulary", argc > 1 ? "file" : "made up"},
                    {"ids", kVocabulary},
                    {"trie_nodes", vocabulary->trie().nodes().size()},
                    {"build_ms", milliseconds(begin)}}
                   .dump()
            << std::endl;
  for (const Workload& load : workloads()) {
    const std::vector<TokenId> ids = longest_matches(*vocabulary, load.answer);
    std::vector<double> compile, cold, largest, warm, applied, without;
    for (int round = 0; round < 5; ++round) {
      const auto start = now_ms();
      const auto constraint = load.compile(vocabulary);
      compile.push_back(milliseconds(start));
      const auto first = constraint->clone(), second = constraint->clone(), third = constraint->clone();
      const Walk cold_walk = walk(*first, ids);
      cold.push_back(cold_walk.mean_ms);
      largest.push_back(cold_walk.largest_ms);
      warm.push_back(walk(*second, ids).mean_ms);
      applied.push_back(walk_applied(third.get(), ids));
      without.push_back(walk_applied(nullptr, ids));
    }
    std::cout << Json{{"form", load.name},
                      {"tokens", ids.size()},
                      {"compile_ms", spread(compile)},
                      {"cold_ms_per_token", spread(cold)},
                      {"cold_largest_ms", spread(largest)},
                      {"warm_ms_per_token", spread(warm)},
                      {"applied_ms_per_token", spread(applied)},
                      {"free_ms_per_token", spread(without)}}
                     .dump()
              << std::endl;
  }
}
