// The ops that only Flash-Next uses: against plain double arithmetic, against their rules, and every backend
// and instruction set against the reference, bit for bit (FlashOps: the backends, a GPU's among them).

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/rope_table.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/cpu_variants.h"
#include "tests/kernels/kv_pages.h"
#include "tests/kernels/op_data.h"

namespace mererun {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

class FlashOps : public OpTest {};
MERERUN_FOR_ALL_BACKENDS(FlashOps);

template <typename Run>
void expect_parity(const std::string& what, Run run) {
  const auto reference = make_reference_ops();
  const std::vector<float> expected = run(*reference);
  for (const CpuVariant& variant : cpu_variants()) {
    SCOPED_TRACE(variant.name + ", " + what);
    expect_same_bits(run(*variant.make()), expected);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

void append(std::vector<float>& all, const std::vector<float>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

std::size_t area(int rows, int cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

/// Inputs of one pass through the streams.
struct StreamData {
  int rows, hidden, rank;
  std::vector<float> streams, weight, low, gate, inject, y;
  StreamData(int t, int h, int r, std::uint32_t seed) : rows(t), hidden(h), rank(r) {
    Numbers n(seed);
    streams = n.normals(area(t, 4 * h), 2);
    weight = n.normals(static_cast<std::size_t>(4 * h));
    low = n.normals(area(t, r), 4);
    gate = n.normals(area(t, 4 * h), 3);
    inject = n.normals(area(t, 4), 5);
    y = n.normals(area(t, h));
  }
};

/// normed | low | mixed | streams after the write.
std::vector<float> run_streams(Ops& ops, const StreamData& d) {
  const Floats streams(ops, d.rows, 4 * d.hidden, d.streams), weight(ops, 1, 4 * d.hidden, d.weight),
      low(ops, d.rows, d.rank, d.low), gate(ops, d.rows, 4 * d.hidden, d.gate),
      inject(ops, d.rows, 4, d.inject), y(ops, d.rows, d.hidden, d.y), normed(ops, d.rows, 4 * d.hidden),
      mixed(ops, d.rows, d.hidden);
  ops.grouped_rms_norm({.x = streams.view(), .weight = weight.view(), .out = normed.view()});
  ops.stream_silu({.x = low.view(), .out = low.view()});
  ops.mix_streams({.x = normed.view(), .gate = gate.view(), .out = mixed.view()});
  ops.add_to_streams({.y = y.view(), .inject = inject.view(), .streams = streams.view()});
  std::vector<float> all = normed.values();
  append(all, low.values());
  append(all, mixed.values());
  append(all, streams.values());
  return all;
}

TEST(StreamOps, FollowTheFormulas) {
  const StreamData d(3, 40, 16, 1);
  const auto ops = make_reference_ops();
  const std::vector<float> got = run_streams(*ops, d);
  std::vector<double> normed, low, mixed, streams;
  for (int t = 0; t < d.rows; ++t) {
    for (int c = 0; c < 4; ++c) {
      const float* x = d.streams.data() + (t * 4 + c) * d.hidden;
      double sum = 0;
      for (int i = 0; i < d.hidden; ++i) sum += static_cast<double>(x[i]) * x[i];
      for (int i = 0; i < d.hidden; ++i)
        normed.push_back(x[i] / std::sqrt(sum / d.hidden + 1e-6) *
                         d.weight[static_cast<std::size_t>(c * d.hidden + i)]);
    }
    for (int i = 0; i < d.rank; ++i) {
      const double x = d.low[static_cast<std::size_t>(t * d.rank + i)] / 4.0;
      low.push_back(x * sigmoid(x));
    }
    for (int i = 0; i < d.hidden; ++i) {
      double sum = 0;
      for (int c = 0; c < 4; ++c) {
        const auto at = static_cast<std::size_t>((t * 4 + c) * d.hidden + i);
        sum += sigmoid(d.gate[at]) * normed[at];
      }
      mixed.push_back(sum / 4);
    }
    for (int c = 0; c < 4; ++c)
      for (int i = 0; i < d.hidden; ++i)
        streams.push_back(d.streams[static_cast<std::size_t>((t * 4 + c) * d.hidden + i)] +
                          2 * sigmoid(d.inject[static_cast<std::size_t>(4 * t + c)] / 4.0) *
                              d.y[static_cast<std::size_t>(t * d.hidden + i)]);
  }
  std::vector<double> expected = normed;
  for (const auto* part : {&low, &mixed, &streams})
    expected.insert(expected.end(), part->begin(), part->end());
  EXPECT_LT(relative_error(got, expected), 1e-6);
}

std::vector<StreamData> stream_cases() {
  std::vector<StreamData> all;
  for (const auto& [rows, hidden, rank] :
       {std::tuple{1, 2560, 320}, {9, 2560, 320}, {33, 128, 64}, {2, 37, 5}})
    all.emplace_back(rows, hidden, rank, 7);
  return all;
}

TEST(StreamOps, EveryInstructionSet) {
  for (const StreamData& d : stream_cases())
    expect_parity("H " + std::to_string(d.hidden), [&](Ops& ops) { return run_streams(ops, d); });
}

TEST_P(FlashOps, Streams) {
  for (StreamData& d : stream_cases()) {
    SCOPED_TRACE(d.hidden);
    d.streams[1] = std::numeric_limits<float>::infinity();  // the first run of the first row is broken
    expect_same_bits(run_streams(*ops_, d), run_streams(*definition_, d));
  }
}

struct NgramData {
  int rows, hidden, taps, dilation;
  std::vector<float> key, query, value, inputs, window, weight, residual;
  NgramData(int t, int h, std::uint32_t seed) : rows(t), hidden(h), taps(4), dilation(3) {
    Numbers n(seed);
    key = n.normals(area(t, 4 * h));
    query = n.normals(area(t, 4 * h));
    value = n.normals(area(t, h));
    inputs = n.normals(area(t, 4 * h));
    window = n.normals(area(past(), 4 * h));
    weight = n.normals(area(taps, 4 * h));
    residual = n.normals(area(t, 4 * h));
  }
  int past() const { return dilation * (taps - 1); }
};

/// gated | residual | window, the pass cut into chunks.
std::vector<float> run_ngram(Ops& ops, const NgramData& d, int chunk) {
  const int width = 4 * d.hidden;
  const Floats key(ops, d.rows, width, d.key), query(ops, d.rows, width, d.query),
      value(ops, d.rows, d.hidden, d.value), gated(ops, d.rows, width), inputs(ops, d.rows, width, d.inputs),
      window(ops, d.past(), width, d.window), weight(ops, d.taps, width, d.weight),
      residual(ops, d.rows, width, d.residual);
  for (int first = 0; first < d.rows; first += chunk) {
    const int n = std::min(chunk, d.rows - first);
    const auto rows = [&](const Floats& all) { return all.view().row_range(first, n); };
    ops.ngram_gate({.key = rows(key), .query = rows(query), .value = rows(value), .out = rows(gated)});
    ops.ngram_conv({.inputs = rows(inputs),
                    .window = window.view(),
                    .weight = weight.view(),
                    .gated = rows(gated),
                    .dilation = d.dilation,
                    .residual = rows(residual)});
    ops.advance_window({.window = window.view(), .inputs = rows(inputs)});
  }
  std::vector<float> all = gated.values();
  append(all, residual.values());
  append(all, window.values());
  return all;
}

TEST(NgramOps, FollowTheFormulas) {
  NgramData d(14, 24, 3);
  for (int i = 0; i < d.hidden; ++i) d.query[static_cast<std::size_t>(i)] = 0;  // a similarity of exactly 0
  const auto ops = make_reference_ops();
  const std::vector<float> got = run_ngram(*ops, d, d.rows);
  const int width = 4 * d.hidden;
  std::vector<double> gated, residual;
  for (int t = 0; t < d.rows; ++t) {
    for (int c = 0; c < 4; ++c) {
      double s = 0;
      for (int i = 0; i < d.hidden; ++i) {
        const auto at = static_cast<std::size_t>(t * width + c * d.hidden + i);
        s += static_cast<double>(d.key[at]) * d.query[at];
      }
      s /= std::sqrt(static_cast<double>(d.hidden));
      const double root = s == 0 ? 0 : std::copysign(std::sqrt(std::max(std::fabs(s), 1e-6)), s);
      for (int i = 0; i < d.hidden; ++i)
        gated.push_back(sigmoid(root) * d.value[static_cast<std::size_t>(t * d.hidden + i)]);
    }
    for (int i = 0; i < width; ++i) {
      double acc = 0;
      for (int j = 0; j < 4; ++j) {
        const int from = t - 9 + 3 * j;
        const auto& source = from < 0 ? d.window : d.inputs;
        acc += static_cast<double>(d.weight[static_cast<std::size_t>(j * width + i)]) *
               source[static_cast<std::size_t>((from < 0 ? from + 9 : from) * width + i)];
      }
      residual.push_back(d.residual[static_cast<std::size_t>(t * width + i)] +
                         gated[static_cast<std::size_t>(t * width + i)] + acc * sigmoid(acc));
    }
  }
  std::vector<double> expected = gated;
  expected.insert(expected.end(), residual.begin(), residual.end());
  EXPECT_LT(
      relative_error({got.begin(), got.begin() + static_cast<std::ptrdiff_t>(expected.size())}, expected),
      1e-6);
  // The window afterwards: the last nine inputs.
  EXPECT_TRUE(std::equal(got.end() - 9 * width, got.end(), d.inputs.end() - 9 * width));
}

std::vector<NgramData> ngram_cases() {
  std::vector<NgramData> all;
  for (const int hidden : {24, 1100, 2560}) all.emplace_back(hidden > 2000 ? 5 : 23, hidden, 11);
  return all;
}

TEST(NgramOps, EveryInstructionSet) {
  for (const NgramData& d : ngram_cases())
    expect_parity("H " + std::to_string(d.hidden), [&](Ops& ops) { return run_ngram(ops, d, 4); });
}

TEST_P(FlashOps, NgramLayerInAnyChunks) {
  for (const NgramData& d : ngram_cases()) {
    SCOPED_TRACE(d.hidden);
    const std::vector<float> whole = run_ngram(*definition_, d, d.rows);
    for (const int chunk : {1, 2, 9, 10, d.rows}) expect_same_bits(run_ngram(*ops_, d, chunk), whole);
  }
}

struct SparseShape {
  int heads = 4, kv_heads = 2, dim = 32, index_heads = 4, index_dim = 32;
  int index_row() const { return (index_heads + 1) * index_dim; }
};

/// A layer of sparse attention over `positions` made-up positions.
struct SparseData {
  int positions;
  SparseShape shape;
  std::vector<float> q_gate, k, v, qk, q_norm, k_norm, index_q_norm, index_k_norm;
  SparseData(int n, std::uint32_t seed, const SparseShape& s = {}) : positions(n), shape(s) {
    Numbers numbers(seed);
    q_gate = numbers.normals(area(n, 2 * s.heads * s.dim));
    k = numbers.normals(area(n, s.kv_heads * s.dim));
    v = numbers.normals(area(n, s.kv_heads * s.dim));
    qk = numbers.normals(area(n, s.index_row()));
    for (auto* w : {&q_norm, &k_norm}) *w = numbers.normals(static_cast<std::size_t>(s.dim));
    for (auto* w : {&index_q_norm, &index_k_norm})
      *w = numbers.normals(static_cast<std::size_t>(s.index_dim));
  }
};

RopeConfig small_rope() {
  RopeConfig config;
  config.theta = 1e4;
  config.rotary_dims = 16;
  return config;
}

/// Index queries, output, chosen blocks, and what the pages hold.
struct SparseRun {
  std::vector<float> index_q, out;
  std::vector<std::int32_t> blocks;
  std::vector<unsigned char> pages;
};

/// The tensors of one layer of sparse attention in a backend's memory.
class SparseLayer {
 public:
  SparseLayer(Ops& ops, const SparseData& d, int chosen)
      : ops_(ops),
        shape_(d.shape),
        rope_(ops, small_rope()),
        pages_(ops, d.positions / kKvPagePositions + 1, shape_.kv_heads, shape_.dim, shape_.index_dim),
        q_gate_(ops, d.positions, 2 * shape_.heads * shape_.dim, d.q_gate),
        k_(ops, d.positions, shape_.kv_heads * shape_.dim, d.k),
        v_(ops, d.positions, shape_.kv_heads * shape_.dim, d.v),
        qk_(ops, d.positions, shape_.index_row(), d.qk),
        q_norm_(ops, 1, shape_.dim, d.q_norm),
        k_norm_(ops, 1, shape_.dim, d.k_norm),
        index_q_norm_(ops, 1, shape_.index_dim, d.index_q_norm),
        index_k_norm_(ops, 1, shape_.index_dim, d.index_k_norm),
        q_(ops, d.positions, shape_.heads * shape_.dim),
        index_q_(ops, d.positions, shape_.index_heads * shape_.index_dim),
        out_(ops, d.positions, shape_.heads * shape_.dim),
        positions_(ops, 1, d.positions, consecutive(0, d.positions)),
        blocks_(ops, d.positions, chosen) {
    rope_.ensure(d.positions);
  }

  void append(int from, int rows) {
    const auto part = [&](const auto& tensor) { return tensor.view().row_range(from, rows); };
    const TensorView positions = positions_.view().col_range(from, rows);
    ops_.attention_prepare({.q_gate = part(q_gate_),
                            .k = part(k_),
                            .v = part(v_),
                            .q_norm = q_norm_.view(),
                            .k_norm = k_norm_.view(),
                            .positions = positions,
                            .rope = rope_.view(),
                            .heads = shape_.heads,
                            .q = part(q_),
                            .cache = pages_.view()});
    ops_.index_prepare({.qk = part(qk_),
                        .q_norm = index_q_norm_.view(),
                        .k_norm = index_k_norm_.view(),
                        .positions = positions,
                        .rope = rope_.view(),
                        .heads = shape_.index_heads,
                        .q = part(index_q_),
                        .cache = pages_.view()});
  }
  void attend(int from, int rows) {
    const auto part = [&](const auto& tensor) { return tensor.view().row_range(from, rows); };
    ops_.attend({.q = part(q_),
                 .q_gate = part(q_gate_),
                 .positions = positions_.view().col_range(from, rows),
                 .cache = pages_.view(),
                 .heads = shape_.heads,
                 .scale_log2e = 0.25f,
                 .out = part(out_)});
  }
  void attend_chosen(int from, int rows) {
    const auto part = [&](const auto& tensor) { return tensor.view().row_range(from, rows); };
    const TensorView positions = positions_.view().col_range(from, rows);
    ops_.select_blocks({.q = part(index_q_),
                        .positions = positions,
                        .cache = pages_.view(),
                        .heads = shape_.index_heads,
                        .blocks = part(blocks_)});
    ops_.attend_blocks({.q = part(q_),
                        .q_gate = part(q_gate_),
                        .positions = positions,
                        .blocks = part(blocks_),
                        .cache = pages_.view(),
                        .heads = shape_.heads,
                        .scale_log2e = 0.25f,
                        .out = part(out_)});
  }
  SparseRun result() const { return {index_q_.values(), out_.values(), blocks_.values(), pages_.bytes()}; }

 private:
  Ops& ops_;
  SparseShape shape_;
  RopeTable rope_;
  KvPages pages_;
  Floats q_gate_, k_, v_, qk_, q_norm_, k_norm_, index_q_norm_, index_k_norm_, q_, index_q_, out_;
  Ints positions_, blocks_;
};

/// Appends every position in chunks, then evaluates rows [first, positions).
SparseRun run_sparse(Ops& ops, const SparseData& d, int first, int k, int chunk, bool dense = false) {
  SparseLayer layer(ops, d, k);
  const auto rows_from = [&](int from) { return std::min(chunk, d.positions - from); };
  for (int from = 0; from < d.positions; from += chunk) layer.append(from, rows_from(from));
  for (int from = first; from < d.positions; from += chunk) {
    dense ? layer.attend(from, rows_from(from)) : layer.attend_chosen(from, rows_from(from));
  }
  return layer.result();
}

TEST(SparseAttention, SelectsTheBestCompleteBlocks) {
  const SparseData d(150, 5);
  const auto ops = make_reference_ops();
  constexpr int kChosen = 9, kFirst = 4 * kChosen - 1;
  const SparseRun run = run_sparse(*ops, d, kFirst, kChosen, 150);
  // Scores in double from the inputs: pooled keys are means of four raw keys, normed, rotated.
  RopeTable rope(*ops, small_rope());
  rope.ensure(150);
  const auto rotated_norm = [&](std::vector<double> x, const std::vector<float>& w, int position) {
    double sum = 0;
    for (const double e : x) sum += e * e;
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = x[i] / std::sqrt(sum / static_cast<double>(x.size()) + 1e-6) * w[i];
    for (std::size_t i = 0; i < 8; ++i) {
      const double c = rope.view().cos.row<float>(position)[i], s = rope.view().sin.row<float>(position)[i];
      const double a = x[i], b = x[i + 8];
      x[i] = a * c - b * s;
      x[i + 8] = b * c + a * s;
    }
    return x;
  };
  constexpr int kDim = 32, kRow = 5 * kDim;
  for (int p = kFirst; p < d.positions; ++p) {
    std::vector<std::pair<double, int>> scores;
    for (int b = 0; b < (p + 1) / 4; ++b) {
      std::vector<double> mean(kDim);
      for (int i = 0; i < kDim; ++i)
        for (int j = 0; j < 4; ++j)
          mean[static_cast<std::size_t>(i)] +=
              d.qk[static_cast<std::size_t>((4 * b + j) * kRow + 4 * kDim + i)] / 4.0;
      const std::vector<double> key = rotated_norm(mean, d.index_k_norm, 4 * b);
      double score = 0;
      for (int h = 0; h < 4; ++h) {
        const float* raw = d.qk.data() + p * kRow + h * kDim;
        const std::vector<double> q = rotated_norm({raw, raw + kDim}, d.index_q_norm, p);
        score += std::max(0.0, std::inner_product(q.begin(), q.end(), key.begin(), 0.0));
      }
      scores.emplace_back(-score, b);
    }
    std::sort(scores.begin(), scores.end());
    if (static_cast<int>(scores.size()) > kChosen && scores[kChosen].first - scores[kChosen - 1].first < 1e-2)
      continue;  // a near tie may fall either way
    std::vector<std::int32_t> want;
    for (int i = 0; i < kChosen; ++i) want.push_back(scores[static_cast<std::size_t>(i)].second);
    std::sort(want.begin(), want.end());
    EXPECT_EQ(
        std::vector<std::int32_t>(run.blocks.begin() + p * kChosen, run.blocks.begin() + (p + 1) * kChosen),
        want)
        << "position " << p;
  }
}

TEST_P(FlashOps, TiesGoToTheLowestBlock) {
  SparseData d(64, 6);
  // Index queries of zeros: every block scores 0.
  for (int p = 0; p < d.positions; ++p)
    std::fill_n(d.qk.begin() + p * d.shape.index_row(), 4 * d.shape.index_dim, 0.0f);
  const SparseRun run = run_sparse(*ops_, d, 40, 5, 64);
  for (int p = 40; p < 64; ++p)
    for (int i = 0; i < 5; ++i) ASSERT_EQ(run.blocks[static_cast<std::size_t>(p * 5 + i)], i);
}

TEST_P(FlashOps, AFullBudgetIsDenseAttentionBitForBit) {
  const SparseData d(1200, 8);  // past a segment of 1,024
  for (const int p : {255, 256, 1023, 1199}) {
    const int k = (p + 1) / 4;
    SparseData cut = d;
    cut.positions = p + 1;
    for (auto& [all, cols] : {std::pair{&cut.q_gate, 256}, {&cut.k, 64}, {&cut.v, 64}, {&cut.qk, 160}})
      all->resize(area(p + 1, cols));
    const SparseRun sparse = run_sparse(*ops_, cut, p, k, 2000),
                    dense = run_sparse(*ops_, cut, p, k, 2000, true);
    expect_same_bits(rows_of(sparse.out, 128, p, 1), rows_of(dense.out, 128, p, 1));
  }
}

void expect_same_run(const SparseRun& run, const SparseRun& expected) {
  expect_same_bits(run.index_q, expected.index_q);
  expect_same_bits(run.out, expected.out);
  EXPECT_EQ(run.blocks, expected.blocks);
  EXPECT_TRUE(run.pages == expected.pages);
}

constexpr int kChosen = 20, kFirstSparse = 4 * kChosen - 1;

TEST(SparseAttention, EveryInstructionSetAnyChunks) {
  const SparseData d(700, 9);
  const SparseRun whole = run_sparse(*make_reference_ops(), d, kFirstSparse, kChosen, 700);
  for (const CpuVariant& variant : cpu_variants()) {
    SCOPED_TRACE(variant.name);
    for (const int chunk : {700, 5, 1})
      expect_same_run(run_sparse(*variant.make(), d, kFirstSparse, kChosen, chunk), whole);
  }
}

TEST_P(FlashOps, SparseAttentionInAnyChunks) {
  const SparseData d(300, 9);  // past a page of 256; a sanitizer takes a while for each of the small launches
  const SparseRun whole = run_sparse(*definition_, d, kFirstSparse, kChosen, d.positions);
  for (const int chunk : {1, 3, 64, d.positions})
    expect_same_run(run_sparse(*ops_, d, kFirstSparse, kChosen, chunk), whole);
}

TEST_P(FlashOps, AnIndexKeyThatIsNoNumberScoresNothing) {
  SparseData d(200, 9);
  constexpr int kBroken = 17;
  d.qk[static_cast<std::size_t>(kBroken * d.shape.index_row() + 4 * d.shape.index_dim)] =
      std::numeric_limits<float>::quiet_NaN();
  const SparseRun run = run_sparse(*ops_, d, 199, kChosen, 200);
  const SparseRun expected = run_sparse(*definition_, d, 199, kChosen, 200);
  EXPECT_EQ(run.blocks, expected.blocks);
  EXPECT_EQ(std::count(run.blocks.begin() + 199 * kChosen, run.blocks.end(), kBroken / 4), 0);
  expect_same_bits(run.out, expected.out);
}

TEST_P(FlashOps, SparseAttentionOfTheRealSizes) {
  // The budget of 512 blocks: few rows with all heads, then more rows than are gathered at a time.
  for (const auto& [rows, heads] : {std::pair{3, 24}, {60, 2}}) {
    const SparseData d(2500, 12, {heads, 2, 256, 4, 128});
    expect_same_run(run_sparse(*ops_, d, d.positions - rows, 512, 2500),
                    run_sparse(*make_reference_ops(), d, d.positions - rows, 512, 2500));
  }
}

TEST(SparseAttention, RowsWithTooFewBlocksAreRefused) {
  const SparseData d(40, 10);
  const auto ops = make_reference_ops();
  EXPECT_THROW(run_sparse(*ops, d, 4 * 8 - 2, 8, 40), Error);
}

}  // namespace
}  // namespace mererun
