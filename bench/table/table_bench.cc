// The n-gram table of Flash-Next on disk: lookups per token, cold and warm, against the device's own random
// reads, and decoding and prefill with the table on disk against the table in memory. All figures of one run
// of one program.
//
//   mererun_table_bench [TABLE_MIB] [GEOMETRY] [LAYERS] [BACKEND]     defaults: 256 small-flash 8 cpu

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/positioned_reads.h"
#include "decode/prefill.h"
#include "model/flash_weights.h"
#include "model/model.h"
#include "model/synthetic_table.h"
#include "model/synthetic_weights.h"

namespace mererun {
namespace {

constexpr int kTokens = 400;
constexpr int kDecodeTokens = 48;
constexpr int kPrefillTokens = 192, kChunk = 64;
constexpr int kRepetitions = 5;

/// Writes the file back and forgets its pages, so that reads reach the device.
void drop_pages(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

/// Microseconds per random 4 KiB read, `count` of them, 48 at a time as a lookup has them, `threads` in
/// flight.
double device_read_us(const std::filesystem::path& path, int count, int threads) {
  const PositionedFile file(path);
  const std::uint64_t pages = std::filesystem::file_size(path) / 4096;
  drop_pages(path);
  std::vector<std::byte> memory(static_cast<std::size_t>(count) * 4096);
  std::vector<PositionedRead> reads;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t page = synthetic_bits(77, static_cast<std::uint64_t>(i)) % pages;
    reads.push_back(
        {&file, page * 4096, std::span(memory).subspan(static_cast<std::size_t>(i) * 4096, 4096)});
  }
  ReadQueue queue(threads);
  const Stopwatch watch;
  for (std::size_t first = 0; first < reads.size(); first += 48) {
    queue.finish(
        queue.start(std::span(reads).subspan(first, std::min<std::size_t>(48, reads.size() - first))));
  }
  return watch.seconds() / count * 1e6;
}

/// Microseconds per token of lookups alone: start and finish, nothing between them.
double lookup_us(NgramTable& table, const std::vector<TokenId>& ids) {
  std::vector<std::int64_t> rows;
  const std::vector<TokenId> context(static_cast<std::size_t>(table.hash().context_tokens()), ids.back());
  const Stopwatch watch;
  for (const TokenId id : ids) {
    rows.clear();
    table.hash().append_rows(context, {&id, 1}, rows);
    table.start(rows);
    table.finish(rows.size());
  }
  return watch.seconds() / static_cast<double>(ids.size()) * 1e6;
}

std::vector<TokenId> random_tokens(int n, int vocabulary, std::uint64_t seed) {
  std::vector<TokenId> ids;
  for (int i = 0; i < n; ++i)
    ids.push_back(static_cast<TokenId>(synthetic_bits(seed, static_cast<std::uint64_t>(i)) %
                                       static_cast<std::uint64_t>(vocabulary)));
  return ids;
}

void bench_lookups(const ModelConfig& config, HostNgramTable host) {
  const std::filesystem::path path = host.shards.front().arrays.front().path;
  const std::vector<TokenId> ids = random_tokens(kTokens, config.vocabulary, 5);
  for (const int threads : {1, 4, 16, 32, 64})
    fmt::print("device, {} in flight: {:.1f} us per random 4 KiB read\n", threads,
               device_read_us(path, kTokens * config.flash->ngram_heads(), threads));
  const double device = device_read_us(path, kTokens * config.flash->ngram_heads(), TableOptions{}.threads);
  host.options.cache_rows = 0;
  NgramTable table(*config.flash, host);
  drop_pages(path);
  const double cold = lookup_us(table, ids);
  const TableStatistics first = table.statistics();
  const double warm = lookup_us(table, ids);
  host.options = {};
  NgramTable cached(*config.flash, host);
  lookup_us(cached, ids);
  const double held = lookup_us(cached, ids);
  const double reads = static_cast<double>(first.reads) / kTokens;
  fmt::print("table: {:.1f} MB, {} rows of {} bytes a token, {:.0f} reads\n",
             static_cast<double>(host.bytes) / 1e6, config.flash->ngram_heads(),
             static_cast<double>(first.bytes) / static_cast<double>(first.distinct), reads);
  fmt::print(
      "device, as the table is read: {:.1f} us per random 4 KiB read, {:.1f} us for a token's {:.0f}\n",
      device, device * reads, reads);
  fmt::print(
      "lookup: cold {:.1f} us a token ({:.2f} of the device's reads), page cache {:.1f} us, row cache {:.1f} "
      "us\n",
      cold, cold / (device * reads), warm, held);
}

using Work = double (*)(Model&, std::span<const TokenId>);

double decode_seconds(Model& model, std::span<const TokenId> ids) {
  SequenceState state = model.new_sequence();
  const PassSegment first{&state, nullptr, 0, 1};
  model.decoder().forward(ids.first(1), {&first, 1});
  const Stopwatch watch;
  for (const TokenId id : ids.subspan(1)) {
    const PassSegment segment{&state, nullptr, 0, 1};
    model.decoder().logits(model.decoder().forward({&id, 1}, {&segment, 1}));
    model.ops().synchronize();  // the next id would be chosen here
  }
  return watch.seconds() / static_cast<double>(ids.size() - 1);
}

double prefill_seconds(Model& model, std::span<const TokenId> ids) {
  SequenceState state = model.new_sequence();
  const Stopwatch watch;
  Prefill(model, state, ids, {.chunk = kChunk, .stops = {}, .history = HistoryMode::kNone}).run();
  model.ops().synchronize();
  return watch.seconds() / static_cast<double>(ids.size());
}

/// One way to have the table.
struct Access {
  const char* name;
  TableMethod method;
  bool is_cold;  // the page cache forgets the table first; else what ran last has left its rows there
};
constexpr Access kAccess[] = {{"in memory", TableMethod::kMemory, false},
                              {"on disk, cold", TableMethod::kThreads, true},
                              {"on disk, in the page cache", TableMethod::kThreads, false},
                              {"mapped, cold", TableMethod::kMapped, true}};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The same work with every kind of table, turn about, in one model.
void bench_work(const char* what, Model& model, int tokens, std::uint64_t seed, Work work) {
  const HostNgramTable& host = model.host().layers[1].flash->ngram->table;
  NgramTable& used = *model.weights().layers[1].flash->ngram->table;
  std::vector<double> seconds[std::size(kAccess)];
  std::vector<NgramTable> tables;
  for (const Access& access : kAccess) {
    HostNgramTable own = host;
    own.options.method = access.method;
    tables.emplace_back(*model.config().flash, own);
  }
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const auto ids =
        random_tokens(tokens, model.config().vocabulary, seed + static_cast<std::uint64_t>(repetition));
    for (std::size_t i = 0; i < tables.size(); ++i) {
      if (kAccess[i].is_cold) drop_pages(host.shards.front().arrays.front().path);
      std::swap(used, tables[i]);
      seconds[i].push_back(work(model, ids));
      std::swap(used, tables[i]);
    }
  }
  const double memory = median(seconds[0]);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    std::vector<double> ratios;
    for (int r = 0; r < kRepetitions; ++r)
      ratios.push_back(seconds[i][static_cast<std::size_t>(r)] / seconds[0][static_cast<std::size_t>(r)]);
    std::sort(ratios.begin(), ratios.end());
    fmt::print("{}, table {}: {:.3f} ms a token, {:.3f} of memory (repetitions {:.3f} to {:.3f})\n", what,
               kAccess[i].name, median(seconds[i]) * 1e3, median(seconds[i]) / memory, ratios.front(),
               ratios.back());
  }
}

void bench_model(SyntheticWeights weights, const std::string& backend) {
  std::unique_ptr<Ops> ops = backend == "cuda" ? make_cuda_ops({}) : make_cpu_ops({});
  const Stopwatch watch;
  Model model(std::move(ops), std::move(weights.host), ModelLimits{kChunk, 4});
  fmt::print("{} layers on {}, loaded in {:.1f} s\n", model.config().layers, model.ops().name(),
             watch.seconds());
  bench_work("decode", model, kDecodeTokens, 100, decode_seconds);
  bench_work("prefill", model, kPrefillTokens, 200, prefill_seconds);
}

int run(int argc, char** argv) {
  const std::uint64_t bytes = (argc > 1 ? std::stoull(argv[1]) : 256) << 20;
  const std::string name = argc > 2 ? argv[2] : "small-flash";
  const int layers = argc > 3 ? std::stoi(argv[3]) : 8;
  const ModelConfig published = make_synthetic_geometry("flash-next", std::nullopt, bytes).config;
  const SyntheticTable table = make_synthetic_table(*published.flash, published.vocabulary, 1);
  bench_lookups(published, table.host);
  bench_model(make_synthetic_weights(make_synthetic_geometry(name, layers, bytes).config, 1),
              argc > 4 ? argv[4] : "cpu");
  return 0;
}

}  // namespace
}  // namespace mererun

int main(int argc, char** argv) {
  try {
    return mererun::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "table_bench: {}\n", error.what());
    return 1;
  }
}
