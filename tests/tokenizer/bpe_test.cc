#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

#include "demo_tokenizer.h"

namespace mererun {
namespace {

/// The algorithm as the paper states it: look for the best pair, merge it, look again. Maps and strings only.
class PlainBpe {
 public:
  explicit PlainBpe(const TokenizerFile& file) {
    for (const auto& entry : file.vocab) ids_[std::string(file.view(entry.bytes))] = entry.id;
    for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
      const auto& merge = file.merges[rank];
      ranks_[{std::string(file.view(merge.left)), std::string(file.view(merge.right))}] = rank;
    }
  }

  std::vector<TokenId> encode(const std::string& piece) const {
    std::vector<std::string> parts;
    for (const char c : piece) parts.emplace_back(1, c);
    while (true) {
      std::size_t best = parts.size();
      std::size_t best_rank = SIZE_MAX;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = ranks_.find({parts[i], parts[i + 1]});
        if (found != ranks_.end() && found->second < best_rank) {
          best = i;
          best_rank = found->second;
        }
      }
      if (best == parts.size()) break;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    std::vector<TokenId> ids;
    for (const std::string& part : parts) ids.push_back(ids_.at(part));
    return ids;
  }

 private:
  std::map<std::string, TokenId> ids_;
  std::map<std::pair<std::string, std::string>, std::size_t> ranks_;
};

TokenizerFile demo_file() {
  return parse_tokenizer_json(testing::read_text(testing::demo_tokenizer_path()), "demo");
}

/// A file over the bytes a, b, c (and the other single bytes) with many random merges, so that merges of
/// merges, equal pairs and ranks below those of their parts all occur.
TokenizerFile random_file(std::mt19937& random) {
  nlohmann::json json = testing::minimal_tokenizer_json();
  std::vector<std::string> texts = {"a", "b", "c"};
  auto& model = json["model"];
  int next_id = 300;
  for (int i = 0; i < 40; ++i) {
    const std::string left = texts[random() % texts.size()];
    const std::string right = texts[random() % texts.size()];
    if (left.size() + right.size() > 12) continue;
    if (!model["vocab"].contains(left + right)) {
      model["vocab"][left + right] = next_id++;
      texts.push_back(left + right);
    }
    model["merges"].push_back({left, right});
  }
  std::shuffle(model["merges"].begin(), model["merges"].end(), random);
  return parse_tokenizer_json(json.dump(), "random");
}

std::string random_piece(std::mt19937& random, std::string_view alphabet, std::size_t length) {
  std::string piece;
  for (std::size_t i = 0; i < length; ++i) piece += alphabet[random() % alphabet.size()];
  return piece;
}

void expect_equal(const Bpe& bpe, const PlainBpe& plain, const std::string& piece) {
  std::vector<TokenId> ids;
  bpe.encode_piece(piece, ids);
  ASSERT_EQ(ids, plain.encode(piece)) << piece;
}

TEST(Bpe, EqualsThePlainAlgorithmOnRandomMerges) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    TokenizerFile file = random_file(random);
    const PlainBpe plain(file);
    const Bpe bpe(std::move(file));
    // Lengths on both sides of the switch from linear search to heap.
    for (const std::size_t length : {1, 2, 3, 7, 20, 60, 95, 96, 97, 98, 150, 300}) {
      expect_equal(bpe, plain, random_piece(random, "abc", length));
      expect_equal(bpe, plain, std::string(length, 'a'));
    }
  }
}

TEST(Bpe, EqualsThePlainAlgorithmOnTheDemoVocabulary) {
  TokenizerFile file = demo_file();
  const PlainBpe plain(file);
  const Bpe bpe(std::move(file));
  std::mt19937 random(6);
  for (int i = 0; i < 300; ++i) {
    expect_equal(bpe, plain, random_piece(random, "etaoin shrdlu_.", 1 + i % 40));
    if (i % 30 == 0) expect_equal(bpe, plain, random_piece(random, "etaoin shrdlu_.", 90 + i));
  }
}

TEST(Bpe, EveryTokenEncodesLikeThePlainAlgorithm) {
  TokenizerFile file = demo_file();
  const PlainBpe plain(file);
  const Bpe bpe(std::move(file));
  for (TokenId id = 0; id < bpe.id_end(); ++id) expect_equal(bpe, plain, std::string(bpe.token_bytes(id)));
}

TEST(Bpe, ATokenThatNoMergeProducesIsNeverEncoded) {
  nlohmann::json json = testing::minimal_tokenizer_json();
  json["model"]["vocab"]["ab"] = 300;
  const Bpe bpe(parse_tokenizer_json(json.dump(), "test"));
  std::vector<TokenId> ids;
  bpe.encode_piece("ab", ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{bpe.find("a").value(), bpe.find("b").value()}));
  EXPECT_EQ(bpe.token_bytes(300), "ab");
}

}  // namespace
}  // namespace mererun
