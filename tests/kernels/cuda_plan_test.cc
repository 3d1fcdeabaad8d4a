// How the CUDA backend spreads its work, computed without a device.
#include <gtest/gtest.h>

#include "kernels/cuda/affine_config.h"
#include "kernels/cuda/affine_middle_plan.h"
#include "kernels/cuda/attend_config.h"

namespace mererun::cuda {
namespace {

constexpr AffineLimits kHopper{132, 232448};

AffineView weight(int out, int in, int group = 64, int stored_bits = 4) {
  AffineView w;
  w.experts = 1;
  w.out = out;
  w.in = in;
  w.group = group;
  w.stored_bits = stored_bits;
  return w;
}

TEST(CudaPlan, RecordsHoldSixteenRowsOfOneGroup) {
  EXPECT_EQ(weight(5120, 5120).record_bytes(), 576);
  EXPECT_EQ(weight(5120, 5120, 32).record_bytes(), 320);
  EXPECT_EQ(weight(5120, 5120, 128, 8).record_bytes(), 2112);
  EXPECT_EQ(weight(5113, 5120).tiles(), 320);
}

TEST(CudaPlan, ActivationsOfTheKnownShapesFitInSharedMemory) {
  for (const int in : {512, 2048, 4096, 5120, 6144, 10240, 17408}) {
    for (const int tiles : {1, 2, 4}) {
      const AffinePlan plan = plan_affine(weight(5120, in), tiles, 320, true, kHopper);
      ASSERT_TRUE(plan.fits) << in << " columns, " << tiles << " tiles";
      EXPECT_LE(plan.shared_bytes, kHopper.shared_per_block);
      EXPECT_EQ(plan.slices, in >= 2048 ? 8 : 1);
      EXPECT_EQ(plan.slices % plan.split, 0);
      EXPECT_EQ(plan.blocks % plan.split, 0) << "blocks that share a tile come in whole sets";
      EXPECT_LE(plan.blocks, kHopper.multiprocessors);
    }
  }
}

TEST(CudaPlan, OneBlockHoldsAllSlicesWhereItCan) {
  EXPECT_EQ(plan_affine(weight(16480, 5120), 1, 1030, true, kHopper).split, 1);
  EXPECT_EQ(plan_affine(weight(5120, 17408), 1, 320, true, kHopper).split, 2);
}

TEST(CudaPlan, PartsOfASplitCoverEveryGroupOnce) {
  for (const int groups : {33, 80, 272}) {
    for (const int parts : {1, 2, 4, 8}) {
      int sum = 0;
      for (int part = 0; part < parts; ++part) sum += groups_of_part(part, parts, 8, groups);
      EXPECT_EQ(sum, groups);
    }
  }
}

TEST(CudaPlan, AFewDozenRowsOfTheKnownShapesFit) {
  for (const int in : {512, 1984, 2048, 4096, 5120, 6144, 10240, 17408}) {
    for (const int bits : {4, 8}) {
      for (const int rows : {13, 16, 17, 32, 33, 95}) {
        for (const int out : {16, 320, 5120, 34816, 248320}) {
          SCOPED_TRACE(testing::Message()
                       << out << " x " << in << ", " << bits << " bits, " << rows << " rows");
          const AffineView w = weight(out, in, 64, bits);
          const MiddlePlan plan = plan_middle(middle_columns(rows), w, w.tiles(), kHopper);
          ASSERT_TRUE(plan.fits);
          EXPECT_LE(plan.shared_bytes, kHopper.shared_per_block);
          const int slices = in >= 2048 ? 8 : 1, split = 1 << plan.split_shift;
          EXPECT_LE(split << plan.member_shift, slices);
          EXPECT_EQ(plan.warpgroups % (1 << plan.member_shift), 0) << "no warpgroup without a team";
          EXPECT_GE(plan.blocks, 1);
          EXPECT_LE(plan.blocks * split, kHopper.multiprocessors);
        }
      }
    }
  }
}

TEST(CudaPlan, WhetherAFewDozenRowsFitDependsOnTheLayoutAlone) {
  // The codes are ordered before it is known how many weights one launch serves.
  for (const int bits : {4, 8}) {
    for (const int columns : {16, 32}) {
      bool fitted = true;
      for (int in = 64; in < 80000; in += 64) {
        const bool fits = plan_middle(columns, weight(16, in, 64, bits), 1, kHopper).fits;
        for (const int tiles : {2, 4, 5, 320, 2176, 15520})
          ASSERT_EQ(plan_middle(columns, weight(16, in, 64, bits), tiles, kHopper).fits, fits)
              << in << ' ' << tiles;
        if (in < 2048) continue;
        ASSERT_TRUE(fitted || !fits) << "longer rows fit no better";
        fitted = fits;
      }
      EXPECT_FALSE(fitted) << "the range has rows that do not fit";
    }
  }
}

TEST(CudaPlan, RunsOfAFewDozenRowsAreSplitWhereBlocksWouldIdle) {
  const auto split = [](int out, int in, int rows) {
    const AffineView w = weight(out, in);
    return 1 << plan_middle(middle_columns(rows), w, w.tiles(), kHopper).split_shift;
  };
  EXPECT_EQ(split(5120, 17408, 16), 8) << "80 runs for 132 blocks";
  EXPECT_EQ(split(5120, 6144, 16), 4) << "shorter rows: fewer parts that wait for each other";
  EXPECT_EQ(split(248320, 5120, 16), 1) << "enough runs for all: no part of a sum leaves its block";
  EXPECT_EQ(split(248320, 5120, 32), 2) << "half of the codes fit";
}

TEST(CudaPlan, RowsTooLongForSharedMemoryAreRefused) {
  EXPECT_FALSE(plan_middle(16, weight(16, 1 << 20), 1, kHopper).fits);
  EXPECT_FALSE(plan_affine(weight(16, 1 << 20), 4, 1, true, kHopper).fits);
  EXPECT_TRUE(plan_affine(weight(16, 1 << 20), 4, 1, false, kHopper).fits);
}

KvLayerView cache(int pages, int kv_heads, int head_dim) {
  KvLayerView view;
  view.page_count = pages;
  view.kv_heads = kv_heads;
  view.head_dim = head_dim;
  return view;
}

TEST(CudaPlan, AttentionTakesTilesThenSegmentsThenEverything) {
  EXPECT_EQ(plan_attend(cache(4, 4, 256), 24, 1, 132, 232448).span, AttendSpan::kTile);
  EXPECT_EQ(plan_attend(cache(4, 4, 256), 24, 1, 132, 232448).chunks, 16);
  EXPECT_EQ(plan_attend(cache(1024, 4, 256), 24, 1, 132, 232448).span, AttendSpan::kSegment);
  EXPECT_EQ(plan_attend(cache(1024, 4, 256), 24, 1, 132, 232448).chunks, 256);
  EXPECT_EQ(plan_attend(cache(32, 4, 256), 24, 1024, 132, 232448).span, AttendSpan::kWhole);
}

TEST(CudaPlan, LongPastsOfHeadsOf256DimsAreTakenTwoTilesAWarp) {
  const auto is_paired = [](int pages, int head_dim, int rows) {
    return plan_attend(cache(pages, 4, head_dim), 24, rows, 132, 232448).is_paired;
  };
  EXPECT_FALSE(is_paired(4, 256, 1));
  EXPECT_TRUE(is_paired(256, 256, 1));
  EXPECT_TRUE(is_paired(32, 256, 1024));
  EXPECT_FALSE(is_paired(256, 128, 1));
  EXPECT_EQ(plan_attend(cache(256, 4, 256), 24, 1, 132, 232448).block_queries, 6);
  EXPECT_EQ(plan_attend(cache(256, 2, 256), 16, 1, 132, 232448).block_queries, 8);
}

TEST(CudaPlan, AttentionBlocksCoverEveryQuery) {
  for (const int rows : {1, 4, 9, 32, 1000}) {
    for (const int group : {1, 6, 8, 12, 40}) {
      const AttendPlan plan = plan_attend(cache(4, 2, 128), 2 * group, rows, 132, 232448);
      EXPECT_GE(plan.query_blocks * kAttendQueries, rows * group);
      EXPECT_LE(plan.shared_bytes, 232448u);
    }
  }
}

TEST(CudaPlan, NoBlockHasQueriesOfTwoRowsWhereEachHasItsOwnCache) {
  for (const int shared : {232448, 101376}) {
    for (const int rows : {1, 5, 54}) {
      for (const int group : {1, 2, 12, 40}) {
        const AttendPlan plan = plan_attend_rows(cache(9, 2, 256), 2 * group, rows, 132, shared);
        EXPECT_EQ(group % plan.block_queries, 0) << group;
        EXPECT_EQ(plan.query_blocks * plan.block_queries, rows * group);
        EXPECT_LE(plan.shared_bytes, static_cast<std::size_t>(shared));
      }
    }
  }
}

TEST(CudaPlan, AttentionFitsWhereABlockHas99KiB) {  // compute capability 8.6 and 8.9
  for (const int pages : {4, 64, 1024}) {
    for (const int rows : {1, 4, 9, 1000}) {
      const AttendPlan plan = plan_attend(cache(pages, 4, 256), 24, rows, 84, 101376);
      EXPECT_LE(plan.shared_bytes, 101376u) << pages << " pages, " << rows << " rows";
      EXPECT_GE(plan.query_blocks * plan.block_queries, rows * 6);
    }
  }
}

}  // namespace
}  // namespace mererun::cuda
