#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/environment.h"
#include "cli/option_table.h"

namespace mererun {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Options as the command `Options` would get them from these words and variables.
template <typename Options>
Options parse(const std::vector<std::string>& arguments, std::map<std::string, std::string> variables = {}) {
  Options options;
  OptionTable table;
  declare(table, options);
  apply_environment(Environment(std::move(variables)), options);
  parse_arguments("test", table, arguments);
  validate(options);
  return options;
}

/// The message with which these words are refused, after its error code's name.
template <typename Options>
std::string refusal(const std::vector<std::string>& arguments,
                    std::map<std::string, std::string> variables = {}) {
  try {
    parse<Options>(arguments, std::move(variables));
  } catch (const Error& error) {
    return std::string(name_of(error.code())) + " " + error.what();
  }
  return "accepted";
}

TEST(TextChatOptions, DefaultsAreTheDocumentedOnes) {
  const auto options = parse<TextChatOptions>({});
  EXPECT_EQ(options.max_tokens, 2048);
  EXPECT_EQ(options.device.backend, "auto");
  EXPECT_EQ(options.output.log_level, "warn");
  EXPECT_EQ(options.sampling.repetition_penalty, 1);
  EXPECT_FALSE(options.sampling.temperature);
  EXPECT_FALSE(options.stream);
  EXPECT_FALSE(options.drafting.speculation);
  EXPECT_EQ(options.drafting.mtp_cost, MtpCost::kMeasured);
}

TEST(TextChatOptions, BothSpellingsOfAValue) {
  for (const auto& words : {std::vector<std::string>{"--prompt", "a b", "--top-k", "5", "-m", "dir"},
                            std::vector<std::string>{"--prompt=a b", "--top-k=5", "--model-root=dir"}}) {
    const auto options = parse<TextChatOptions>(words);
    EXPECT_EQ(options.prompt, "a b");
    EXPECT_EQ(options.sampling.top_k, 5);
    EXPECT_EQ(options.model.model_root, "dir");
  }
}

TEST(TextChatOptions, ValuesMayLookLikeOptions) {
  const auto options =
      parse<TextChatOptions>({"--prompt=--help me", "--presence-penalty", "-1.5", "--system", "-x"});
  EXPECT_EQ(options.prompt, "--help me");
  EXPECT_EQ(options.sampling.presence_penalty, -1.5);
  EXPECT_EQ(options.system, "-x");
}

/// What becomes of every option of a command that takes a value, when the value is the empty one.
template <typename Options>
void expect_empty_values_alike() {
  Options declared;
  OptionTable table;
  declare(table, declared);
  for (const OptionSpec& option : table.options()) {
    if (option.is_switch()) continue;
    const std::string name = option.long_name();
    EXPECT_EQ(refusal<Options>({name + "=", "--quiet"}), refusal<Options>({name, "", "--quiet"})) << name;
    EXPECT_EQ(refusal<Options>({"--quiet", name + "="}), refusal<Options>({"--quiet", name, ""})) << name;
  }
}

TEST(Options, AnEmptyValueNeverTakesTheNextWord) {
  expect_empty_values_alike<TextChatOptions>();
  expect_empty_values_alike<ApiServeOptions>();
  expect_empty_values_alike<BenchmarkMtpOptions>();
  expect_empty_values_alike<BenchmarkVerificationOptions>();
  expect_empty_values_alike<ModelConvertOptions>();
  EXPECT_THAT(refusal<TextChatOptions>({"--prompt=", "--json"}),
              HasSubstr("--prompt: expected a text that is not empty"));
  EXPECT_EQ(parse<TextChatOptions>({"--prompt", "--system=", "--json"}).prompt, "--system=");
  EXPECT_EQ(parse<TextChatOptions>({"--prompt=a=", "--stop", "b="}).prompt, "a=");
}

TEST(TextChatOptions, RepeatedStopsKeepTheirOrder) {
  EXPECT_THAT(parse<TextChatOptions>({"--stop", "b", "--json", "--stop=a,c"}).stop, ElementsAre("b", "a,c"));
  std::vector<std::string> many;
  for (int i = 0; i < 17; ++i) many.insert(many.end(), {"--stop", std::to_string(i)});
  EXPECT_THAT(refusal<TextChatOptions>(many), HasSubstr("--stop: expected at most 16 texts, got 17"));
  EXPECT_THAT(refusal<TextChatOptions>({"--stop="}), HasSubstr("--stop"));
}

TEST(TextChatOptions, SwitchPairs) {
  EXPECT_EQ(parse<TextChatOptions>({"--no-thinking"}).thinking, false);
  EXPECT_EQ(parse<TextChatOptions>({"--thinking", "--thinking"}).thinking, true);
  EXPECT_EQ(parse<TextChatOptions>({"--no-stream"}).stream, false);
  EXPECT_THAT(refusal<TextChatOptions>({"--stream", "--no-stream"}),
              HasSubstr("--stream and --no-stream: expected at most one of them, got both"));
}

TEST(TextChatOptions, RangesAreChecked) {
  const std::vector<std::vector<std::string>> bad = {{"--max-tokens", "0"},
                                                     {"--max-tokens", "1.5"},
                                                     {"--max-tokens", "ten"},
                                                     {"--max-tokens", ""},
                                                     {"--max-tokens", "1e3"},
                                                     {"--max-tokens", "99999999999999999999"},
                                                     {"--temperature", "2.01"},
                                                     {"--temperature", "-0.1"},
                                                     {"--temperature", "nan"},
                                                     {"--temperature", "inf"},
                                                     {"--top-p", "0"},
                                                     {"--top-p", "1.0001"},
                                                     {"--top-k", "-1"},
                                                     {"--min-p", "1.1"},
                                                     {"--presence-penalty", "2.5"},
                                                     {"--frequency-penalty=-2.1"},
                                                     {"--repetition-penalty", "0"},
                                                     {"--seed", "x"},
                                                     {"--seed", "18446744073709551616"},
                                                     {"--logprobs", "21", "--json"},
                                                     {"--context-size", "1"},
                                                     {"--threads", "0"},
                                                     {"--device", "-1"},
                                                     {"--backend", "metal"},
                                                     {"--mtp-block-size", "1"},
                                                     {"--mtp-cost", "5.1"},
                                                     {"--mtp-cost", "0"},
                                                     {"--speculation", "maybe"},
                                                     {"--route", "fast"},
                                                     {"--log-level", "loud"},
                                                     {"--response-format", "xml"},
                                                     {"--reasoning-effort", "high"},
                                                     {"--prompt", ""}};
  for (const auto& words : bad) {
    EXPECT_THAT(refusal<TextChatOptions>(words),
                HasSubstr("invalid_argument " + words[0].substr(0, words[0].find('='))))
        << words[0];
  }
}

TEST(TextChatOptions, EdgesOfRangesAreAccepted) {
  const std::vector<std::vector<std::string>> good = {
      {"--temperature", "0"},    {"--temperature", "2"},
      {"--top-p", "1"},          {"--top-k", "0"},
      {"--min-p", "0"},          {"--min-p", "1"},
      {"--presence-penalty=-2"}, {"--frequency-penalty", "2"},
      {"--mtp-block-size", "2"}, {"--mtp-cost", "5"},
      {"--mtp-cost", "fixed"},   {"--logprobs", "0", "--json"},
      {"--max-tokens", "1"},     {"--seed", "18446744073709551615"},
      {"--seed", "-1"},          {"--speculation", "auto"}};
  for (const auto& words : good) EXPECT_EQ(refusal<TextChatOptions>(words), "accepted") << words[0];
  EXPECT_EQ(parse<TextChatOptions>({"--seed", "-1"}).sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(parse<TextChatOptions>({"--mtp-cost", "0.5"}).drafting.mtp_cost_ratio, 0.5);
  // The variable's ratio is that of the fixed rule, and a flag's goes before it.
  const std::map<std::string, std::string> ratio = {{"MERERUN_Q35_MTP_HEAD_COST_RATIO", "0.01"}};
  EXPECT_EQ(parse<TextChatOptions>({"--mtp-cost", "fixed"}, ratio).drafting.mtp_cost_ratio, 0.01);
  EXPECT_EQ(parse<TextChatOptions>({"--mtp-cost", "0.5"}, ratio).drafting.mtp_cost_ratio, 0.5);
  EXPECT_EQ(parse<TextChatOptions>({"--mtp-cost", "measured"}, ratio).drafting.mtp_cost, MtpCost::kMeasured);
}

TEST(TextChatOptions, PromptsExcludeEachOther) {
  EXPECT_THAT(refusal<TextChatOptions>({"--prompt", "a", "--messages", "b"}),
              HasSubstr("at most one of them, got 2"));
  EXPECT_THAT(refusal<TextChatOptions>({"--interactive", "--json"}), HasSubstr("--interactive and --json"));
  EXPECT_THAT(refusal<TextChatOptions>({"--stream", "--json"}), HasSubstr("--json and --stream"));
  EXPECT_THAT(refusal<TextChatOptions>({"--logprobs", "2"}), HasSubstr("--logprobs"));
}

TEST(TextChatOptions, SchemaImpliesItsFormat) {
  EXPECT_EQ(parse<TextChatOptions>({"--json-schema", "s.json"}).response_format, "json_schema");
  EXPECT_THAT(refusal<TextChatOptions>({"--json-schema", "s.json", "--response-format", "text"}),
              HasSubstr("got text"));
  EXPECT_THAT(refusal<TextChatOptions>({"--response-format", "json_schema"}),
              HasSubstr("got no --json-schema"));
}

TEST(TextChatOptions, AGrammarIsTheOnlyForm) {
  EXPECT_EQ(parse<TextChatOptions>({"--grammar", "g", "--response-format", "text"}).grammar_file, "g");
  for (const std::vector<std::string>& other :
       {std::vector<std::string>{"--json-schema", "s.json"}, {"--response-format", "json_object"}}) {
    std::vector<std::string> words{"--grammar", "g"};
    words.insert(words.end(), other.begin(), other.end());
    EXPECT_THAT(refusal<TextChatOptions>(words), HasSubstr("--grammar and --response-format"));
  }
}

TEST(TextChatOptions, ImagesAreRefusedByName) {
  EXPECT_THAT(refusal<TextChatOptions>({"--image", "a.png"}), HasSubstr("unsupported text chat --image"));
}

TEST(Variables, AreDefaultsThatFlagsReplace) {
  const std::map<std::string, std::string> variables = {{"MERERUN_BACKEND", "cpu"},
                                                        {"MERERUN_THREADS", "3"},
                                                        {"MERERUN_CPU_ISA", "portable"},
                                                        {"MERERUN_LOG", "info"},
                                                        {"MERERUN_Q35_MTP_SPECULATION", " Off "},
                                                        {"MERERUN_Q35_MTP_BLOCK_SIZE", "4"}};
  const auto options = parse<TextChatOptions>({}, variables);
  EXPECT_EQ(options.device.backend, "cpu");
  EXPECT_EQ(options.device.threads, 3);
  EXPECT_EQ(options.device.cpu_isa, "portable");
  EXPECT_EQ(options.output.log_level, "info");
  EXPECT_EQ(options.drafting.speculation, false);
  EXPECT_EQ(options.drafting.mtp_block_size, 4);
  const auto flags = parse<TextChatOptions>({"--threads", "1", "--cpu-isa", "auto", "--speculation", "auto",
                                             "--mtp-block-size", "8", "--backend=auto"},
                                            variables);
  EXPECT_EQ(flags.device.threads, 1);
  EXPECT_EQ(flags.device.cpu_isa, "auto");
  EXPECT_EQ(flags.device.backend, "auto");
  EXPECT_FALSE(flags.drafting.speculation);
  EXPECT_EQ(flags.drafting.mtp_block_size, 8);
}

TEST(Variables, WrongFormsCountAsUnset) {
  const auto options = parse<TextChatOptions>(
      {}, {{"MERERUN_THREADS", "many"}, {"MERERUN_Q35_MTP_BLOCK_SIZE", "1"}, {"MERERUN_BACKEND", ""}});
  EXPECT_FALSE(options.device.threads);
  EXPECT_FALSE(options.drafting.mtp_block_size);
  EXPECT_EQ(options.device.backend, "auto");
}

TEST(BenchmarkMtpOptions, DefaultsAndLists) {
  const auto defaults = parse<BenchmarkMtpOptions>({});
  EXPECT_THAT(defaults.prompt_repeats, ElementsAre(150));
  EXPECT_THAT(defaults.decode_tokens, ElementsAre(32));
  EXPECT_THAT(defaults.temperatures, ElementsAre(0.0));
  EXPECT_THAT(defaults.variants, ElementsAre("baseline", "adaptive", "forced"));
  const auto lists =
      parse<BenchmarkMtpOptions>({"--prompt-repeat-values", "10,20", "--decode-token-values=8,16",
                                  "--temperature-values", "0,0.7", "--variants", "fixed,baseline"});
  EXPECT_THAT(lists.prompt_repeats, ElementsAre(10, 20));
  EXPECT_THAT(lists.decode_tokens, ElementsAre(8, 16));
  EXPECT_THAT(lists.temperatures, ElementsAre(0.0, 0.7));
  EXPECT_THAT(lists.variants, ElementsAre("fixed", "baseline"));
  EXPECT_THAT(parse<BenchmarkMtpOptions>({"--decode-tokens", "256"}).decode_tokens, ElementsAre(256));
}

TEST(BenchmarkMtpOptions, RefusesWhatContradicts) {
  using B = BenchmarkMtpOptions;
  EXPECT_THAT(refusal<B>({"-p", "a", "--prompt-repeat", "3"}), HasSubstr("at most one of them"));
  EXPECT_THAT(refusal<B>({"--prompt-repeat", "3", "--prompt-repeat-values", "4"}),
              HasSubstr("at most one of them"));
  EXPECT_THAT(refusal<B>({"--decode-tokens", "3", "--decode-token-values", "4"}),
              HasSubstr("--decode-tokens and"));
  EXPECT_THAT(refusal<B>({"--variants", "baseline,baseline"}), HasSubstr("baseline is repeated"));
  EXPECT_THAT(refusal<B>({"--variants", "turbo"}), HasSubstr("one of baseline, adaptive, forced, fixed"));
  EXPECT_THAT(refusal<B>({"--decode-token-values", "8,,16"}), HasSubstr("--decode-token-values"));
  EXPECT_THAT(refusal<B>({"--decode-tokens", "100", "--context-size", "100"}), HasSubstr("--context-size"));
  EXPECT_THAT(refusal<B>({"--repetitions", "0"}), HasSubstr("--repetitions"));
  EXPECT_THAT(refusal<B>({"--warmups", "-1"}), HasSubstr("--warmups"));
}

// An option that could only be refused, or that changes nothing, is none of the command; the message names it
// and the commands that have it.
TEST(DraftingOptions, BelongToTheCommandsThatTheyChange) {
  const auto expect_foreign = [](const std::string& got, const std::string& name) {
    EXPECT_EQ(got, "invalid_argument test: expected an option of this command, got " + name);
  };
  for (const char* name : {"--speculation", "--route"}) {
    expect_foreign(refusal<BenchmarkMtpOptions>({name, "auto"}), name);
    expect_foreign(refusal<ModelQualifyOptions>({name, "auto"}), name);
  }
  for (const char* name : {"--speculation", "--route", "--mtp-root", "--mtp-block-size", "--mtp-cost"})
    expect_foreign(refusal<BenchmarkVerificationOptions>({name, "4"}), name);
  const std::map<std::string, std::string> variables = {{"MERERUN_Q35_MTP_SPECULATION", "off"},
                                                        {"MERERUN_Q35_MTP_BLOCK_SIZE", "3"}};
  EXPECT_EQ(refusal<BenchmarkVerificationOptions>({}, variables), "accepted");
  EXPECT_EQ(refusal<BenchmarkMtpOptions>({"--mtp-root", "r", "--mtp-block-size", "4", "--mtp-cost", "fixed"}),
            "accepted");
}

TEST(IntegerOptions, AreRefusedWithTheirRange) {
  for (const char* value :
       {"1", "0", "-3", "2147483648", "999999999999", "99999999999999999999", "1e3", "x"}) {
    const std::string expected =
        std::string("invalid_argument --mtp-block-size: expected an integer from 2 to 2147483647, got \"") +
        value + "\"";
    EXPECT_EQ(refusal<TextChatOptions>({std::string("--mtp-block-size=") + value}), expected);
    EXPECT_EQ(refusal<BenchmarkMtpOptions>({std::string("--mtp-block-size=") + value}), expected);
  }
  EXPECT_EQ(refusal<TextChatOptions>({"--mtp-block-size", "2147483647"}), "accepted");
  EXPECT_THAT(refusal<BenchmarkMtpOptions>({"--forced-mtp-min-prompt-tokens", "999999999999"}),
              HasSubstr("expected an integer from 0 to 2147483647, got \"999999999999\""));
}

TEST(BenchmarkMtpOptions, VariantsClearTheVariables) {
  const auto options = parse<BenchmarkMtpOptions>(
      {},
      {{"MERERUN_Q35_MTP_SPECULATION", "on"}, {"MERERUN_Q35_MTP_BLOCK_SIZE", "3"}, {"MERERUN_THREADS", "2"}});
  EXPECT_FALSE(options.drafting.speculation);
  EXPECT_FALSE(options.drafting.mtp_block_size);
  EXPECT_EQ(options.device.threads, 2);
}

TEST(BenchmarkVerificationOptions, WidthRules) {
  using B = BenchmarkVerificationOptions;
  EXPECT_TRUE(parse<B>({}).widths.empty());
  EXPECT_THAT(parse<B>({"--widths", "9,1"}).widths, ElementsAre(9, 1));
  for (const char* widths : {"", "1,", ",1", "0", "33", "4,4", "two", "1;2"}) {
    EXPECT_THAT(refusal<B>({std::string("--widths=") + widths}), HasSubstr("--widths")) << widths;
  }
  EXPECT_THAT(refusal<B>({"--tokens", "31"}), HasSubstr("--tokens"));
  EXPECT_THAT(refusal<B>({"--trials", "0"}), HasSubstr("--trials"));
}

TEST(BenchmarkVerificationOptions, CertifiedWidthsBeforeAnyLoad) {
  auto options = parse<BenchmarkVerificationOptions>({"--widths", "9,16"});
  EXPECT_NO_THROW(check_widths(options, 32));
  EXPECT_THROW(check_widths(options, 9), Error);
  options.uncertified = true;
  EXPECT_NO_THROW(check_widths(options, 9));
}

TEST(ApiServeOptions, AForeignAddressNeedsAKey) {
  EXPECT_EQ(refusal<ApiServeOptions>({}), "accepted");
  EXPECT_THAT(refusal<ApiServeOptions>({"--host", "0.0.0.0"}),
              HasSubstr("--host: expected a loopback address"));
  EXPECT_EQ(refusal<ApiServeOptions>({"--host", "0.0.0.0", "--api-key", "k"}), "accepted");
  EXPECT_EQ(refusal<ApiServeOptions>({"--host", "0.0.0.0"}, {{"MERERUN_API_KEY", "k"}}), "accepted");
  EXPECT_THAT(refusal<ApiServeOptions>({"--port", "65536"}), HasSubstr("--port"));
}

TEST(ApiServeOptions, TheLogIsAsAskedFor) {
  EXPECT_EQ(parse<ApiServeOptions>({}).output.log_level, "info");
  EXPECT_EQ(parse<ApiServeOptions>({"--log-level", "warn"}).output.log_level, "warn");
  EXPECT_EQ(parse<ApiServeOptions>({}, {{"MERERUN_LOG", "warn"}}).output.log_level, "warn");
}

TEST(ApiServeOptions, PrefixCacheVariables) {
  EXPECT_EQ(parse<ApiServeOptions>({}, {{"MERERUN_PREFIX_CACHE_BYTES", "1000"}}).prefix_cache_bytes, 1000);
  EXPECT_EQ(parse<ApiServeOptions>({}, {{"MERERUN_Q35_PREFIX_KV_CACHE", "0"}}).prefix_cache_bytes, 0);
  EXPECT_EQ(parse<ApiServeOptions>({"--prefix-cache-bytes", "5"}, {{"MERERUN_Q35_PREFIX_KV_CACHE", "0"}})
                .prefix_cache_bytes,
            5);
}

TEST(Loopback, Addresses) {
  for (const char* host : {"localhost", "127.0.0.1", "127.8.9.1", "::1"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org", ""}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(ServerUrl, PutsAnIpv6AddressInBrackets) {
  EXPECT_EQ(url_of("127.0.0.1", 8080), "http://127.0.0.1:8080/");
  EXPECT_EQ(url_of("localhost", 1), "http://localhost:1/");
  EXPECT_EQ(url_of("::1", 8080), "http://[::1]:8080/");
}

TEST(ModelConvertOptions, NeedsItsFolders) {
  EXPECT_THAT(refusal<ModelConvertOptions>({"--output", "b"}),
              HasSubstr("--source: expected a folder, got none"));
  EXPECT_THAT(refusal<ModelConvertOptions>({"--source", "a", "--output", "b", "--bits", "7"}),
              HasSubstr("--bits"));
  EXPECT_THAT(refusal<ModelConvertOptions>({"--source", "a", "--output", "b", "--group", "48"}),
              HasSubstr("--group"));
  EXPECT_EQ(refusal<ModelConvertOptions>({"--source", "a", "--output", "b"}), "accepted");
}

TEST(ModelQualifyOptions, DraftsWhateverTheVariableSays) {
  EXPECT_EQ(refusal<ModelQualifyOptions>({}, {{"MERERUN_Q35_MTP_SPECULATION", "off"}}), "accepted");
}

}  // namespace

}  // namespace mererun
