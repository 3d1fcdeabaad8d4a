// Fuzz target of grammars and schemas: the input is a grammar, or a JSON schema when it begins with '{'. It
// compiles or throws Error with kInvalidArgument; what compiles yields, with tokens chosen by the input's own
// bytes, a text that never meets a dead end.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "grammar/compile.h"

namespace {

using namespace mererun;
using Json = nlohmann::ordered_json;

std::shared_ptr<const GrammarVocabulary> vocabulary() {
  static const std::shared_ptr<const GrammarVocabulary> kVocabulary = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
    for (const char* text :
         {"{\"", "\":", "\",\"", "true", "null", "ab", "12", "  ", "é", "\xE6\x9D", "</", "\\u00"})
      texts.push_back(text);
    std::vector<GrammarVocabulary::Token> tokens;
    for (const std::string& text : texts) tokens.push_back({text, false});
    tokens.push_back({"<end>", true});
    return std::make_shared<const GrammarVocabulary>(
        tokens, std::vector<TokenId>{static_cast<TokenId>(tokens.size()) - 1});
  }();
  return kVocabulary;
}

std::unique_ptr<TokenConstraint> compile(const std::string& text) {
  if (!text.starts_with('{')) return compile_grammar(text, vocabulary());
  const Json schema = Json::parse(text, nullptr, false);
  if (schema.is_discarded()) return nullptr;
  return compile_json_schema(schema, vocabulary());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::unique_ptr<TokenConstraint> constraint;
  try {
    constraint = compile(text);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) std::abort();
  }
  if (!constraint) return 0;
  for (std::size_t step = 0; step < 64 && !constraint->is_complete(); ++step) {
    const TokenMask* mask = constraint->mask();
    if (mask == nullptr) std::abort();
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < vocabulary()->size(); ++id)
      if (mask->allows(id)) allowed.push_back(id);
    if (allowed.empty()) break;  // beyond the bounds on readings
    constraint->accept(allowed[(data[step % size] * 31u + step) % allowed.size()]);
  }
  return 0;
}
