#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/ngram_hash.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;

/// The published model's numbers.
FlashConfig published() {
  FlashConfig c;
  c.ngram_embed_dim = 2560;
  c.ngram_size = 3;
  c.heads_per_ngram = 8;
  c.ngram_vocab_base = 20000000;
  c.ngram_vocab_multiple = 128;
  c.ngram_parts = 128;
  c.ngram_cut = 248044;
  return c;
}
constexpr int kVocabulary = 248320;

std::vector<std::int64_t> rows_of(const NgramHash& hash, std::span<const TokenId> context,
                                  std::span<const TokenId> ids) {
  std::vector<std::int64_t> rows;
  hash.append_rows(context, ids, rows);
  return rows;
}

TEST(NgramBuffers, ThePublishedModels) {
  const NgramBuffers b = make_ngram_buffers(published(), kVocabulary);
  EXPECT_THAT(b.multipliers, ElementsAre(23703573157769, 20109073645365, 8052911324071));
  EXPECT_THAT(b.head_sizes,
              ElementsAre(20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
                          20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171));
  EXPECT_EQ(b.head_offsets[1], 20000003);
  EXPECT_EQ(b.head_offsets[15], 300001275);
  EXPECT_EQ(ngram_table_rows(published(), b), 320001536);
}

TEST(NgramHash, PublishedVectors) {
  const NgramHash hash(published(), make_ngram_buffers(published(), kVocabulary));
  const std::vector<TokenId> start{248044, 248044};
  const std::vector<TokenId> ids{248045, 8678, 198, 248044, 10, 20, 30};
  const std::vector<std::int64_t> rows = rows_of(hash, start, ids);
  const auto of = [&](int t) {
    return std::vector<std::int64_t>(rows.begin() + 16 * t, rows.begin() + 16 * (t + 1));
  };
  EXPECT_THAT(of(0), ElementsAre(13981229, 30076798, 49239434, 61315716, 98540601, 111186732, 120378863,
                                 146384625, 173637879, 184336749, 217808755, 222173721, 249579227, 277180543,
                                 299757935, 312970430));
  EXPECT_THAT(of(1), ElementsAre(13195481, 23692419, 52825701, 65963205, 92692693, 115764651, 131149483,
                                 159779602, 164082284, 199258323, 209685996, 226842979, 247008356, 268371579,
                                 282425561, 314691559));
  // End-of-text itself keeps its context; what follows it does not see past it.
  EXPECT_THAT(of(3), ElementsAre(16849591, 37537304, 42290399, 73883125, 88405327, 114186760, 123740665,
                                 158125394, 179690832, 184906853, 212998499, 230659246, 254357133, 279111194,
                                 280930532, 311787663));
  EXPECT_THAT(of(4), ElementsAre(6826666, 27775725, 51991156, 74082527, 82622748, 119600976, 135816374,
                                 152166807, 174244281, 190221032, 211723794, 232787707, 243645790, 275729718,
                                 280030017, 303574322));
  EXPECT_THAT(of(5), ElementsAre(4810669, 34962340, 40038404, 63145186, 97237011, 115267695, 122313706,
                                 158375242, 171840321, 191688874, 219996824, 228806855, 252506948, 276566639,
                                 284666446, 305764640));
  EXPECT_THAT(of(6), ElementsAre(9878115, 26555603, 54895210, 62571545, 80580723, 119917398, 128922427,
                                 147596134, 168936175, 195223391, 219226064, 233524685, 246670267, 279816194,
                                 297531600, 306108296));
}

TEST(NgramHash, AnySplitGivesTheSameRows) {
  const NgramHash hash(published(), make_ngram_buffers(published(), kVocabulary));
  std::vector<TokenId> ids{248044, 248044};  // the context before the first token
  for (int i = 0; i < 40; ++i) ids.push_back(i % 7 == 3 ? 248044 : (i * 7919) % kVocabulary);
  const std::span<const TokenId> all(ids);
  const std::vector<std::int64_t> whole = rows_of(hash, all.first(2), all.subspan(2));
  for (const std::size_t chunk : {1u, 2u, 3u, 5u}) {
    std::vector<std::int64_t> pieces;
    for (std::size_t at = 2; at < ids.size(); at += chunk)
      hash.append_rows(all.subspan(at - 2, 2), all.subspan(at, std::min(chunk, ids.size() - at)), pieces);
    EXPECT_EQ(pieces, whole) << "chunk " << chunk;
  }
}

TEST(NgramHash, ACutHidesEverythingOlder) {
  const NgramHash hash(published(), make_ngram_buffers(published(), kVocabulary));
  const std::vector<TokenId> one{5, 248044}, other{77, 248044};
  const std::vector<TokenId> id{9};
  EXPECT_EQ(rows_of(hash, one, id), rows_of(hash, other, id));
  const std::vector<TokenId> before{248044, 5}, seen{6, 5};
  EXPECT_NE(rows_of(hash, before, id), rows_of(hash, seen, id));
}

}  // namespace
}  // namespace mererun
