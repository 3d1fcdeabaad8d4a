// Fuzz target of the tokenizer. The first byte chooses what the rest is:
//   even: the text of a tokenizer.json; loads, or throws Error
//   odd:  a text for the bundled tokenizer; encode, decode and streaming must agree with one another

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

using namespace mererun;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_load(std::string_view json) {
  try {
    const auto tokenizer = Tokenizer::from_json(json, "fuzz");
    const std::string_view text = json.substr(0, 200);
    const std::string back = tokenizer->decode(tokenizer->encode(text));
    require(valid_utf8_prefix(back) == back.size());
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kUnsupported);
  }
}

void check_pieces(std::string_view text) {
  static const auto scanner = make_qwen_pre_tokenizer();
  std::vector<std::size_t> ends;
  scanner->split(text, ends);
  require(std::is_sorted(ends.begin(), ends.end()));
  require(ends.empty() ? text.empty() : ends.back() == text.size());
}

void check_text(std::string_view bytes) {
  static const auto tokenizer = Tokenizer::load(MERERUN_SOURCE_DIR "/models/demo-dense-4bit/tokenizer.json");
  std::string repaired;
  append_lossy_utf8(bytes, repaired);
  require(valid_utf8_prefix(repaired) == repaired.size());
  check_pieces(repaired);
  for (const AddedTokenText added : {AddedTokenText::kToken, AddedTokenText::kPlain}) {
    const std::vector<TokenId> ids = tokenizer->encode(bytes, {.added_tokens = added});
    // Added tokens cut the text before NFC, so a mark after one stays apart; compare what is left the same.
    const std::string text = tokenizer->decode(ids);
    std::string storage;
    std::string again;
    require(normalize_nfc(text, storage) == normalize_nfc(repaired, again));
    Detokenizer detokenizer(tokenizer);
    std::string streamed;
    for (const TokenId id : ids) streamed += detokenizer.append(id);
    streamed += detokenizer.flush();
    require(streamed == text);
  }
}

// The bytes as ids, two a token: any sequence must stream like it decodes.
void check_ids(std::string_view bytes) {
  static const auto tokenizer = Tokenizer::load(MERERUN_SOURCE_DIR "/models/demo-dense-4bit/tokenizer.json");
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    ids.push_back((static_cast<unsigned char>(bytes[i]) << 8 | static_cast<unsigned char>(bytes[i + 1])) &
                  0x3FFF);
  }
  Detokenizer detokenizer(tokenizer, SpecialTokens::kSkip);
  std::string streamed;
  for (const TokenId id : ids) {
    const std::string delta = detokenizer.append(id);
    require(valid_utf8_prefix(delta) == delta.size());
    streamed += delta;
  }
  streamed += detokenizer.flush();
  require(streamed == tokenizer->decode(ids, SpecialTokens::kSkip));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    check_load(rest);
  } else {
    check_text(rest);
    check_ids(rest);
  }
  return 0;
}
