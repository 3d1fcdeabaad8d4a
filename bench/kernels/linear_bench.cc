// Shares of the machine that the CPU backend's linear layers reach: of the read bandwidth at few rows, of the
// integer multiply-add rate at many. Both peaks are measured beside each kernel, turn about, in the same run.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bench/kernels/machine_peaks.h"
#include "kernels/cpu/cpu_isa.h"

namespace mererun::bench {
namespace {

struct Options {
  int threads = 0;
  CpuIsa isa = CpuIsa::kAuto;
  bool cpu_clock = false;  // time by the processor's clock of one thread: for a busy machine
  int repeats = 7;
  int bits = 4, group = 64, in = 5120, out = 17408;
  std::vector<int> rows = {1, 2, 3, 4, 6, 8, 9, 16, 32, 64, 128, 512};
};

[[noreturn]] void usage() {
  fmt::print(stderr,
             "usage: mererun_linear_bench [--threads N] [--isa NAME] [--cpu-clock] "
             "[--repeats N]\n"
             "                            [--bits B] [--group G] [--in K] [--out N] [--rows M]\n");
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--cpu-clock") {
      o.cpu_clock = true;
      o.threads = 1;
      continue;
    }
    if (i + 1 == argc) usage();
    const std::string value = argv[++i];
    if (name == "--isa")
      o.isa = parse_cpu_isa(value);
    else if (name == "--threads")
      o.threads = std::atoi(value.c_str());
    else if (name == "--repeats")
      o.repeats = std::atoi(value.c_str());
    else if (name == "--bits")
      o.bits = std::atoi(value.c_str());
    else if (name == "--group")
      o.group = std::atoi(value.c_str());
    else if (name == "--in")
      o.in = std::atoi(value.c_str());
    else if (name == "--out")
      o.out = std::atoi(value.c_str());
    else if (name == "--rows")
      o.rows = {std::atoi(value.c_str())};
    else
      usage();
  }
  if (o.isa == CpuIsa::kAuto) {
    o.isa = cpu::select_kernels(o.isa).isa;
  }
  if (o.threads == 0) o.threads = physical_core_count();
  return o;
}

double now(bool cpu_clock) {
  timespec t{};
  ::clock_gettime(cpu_clock ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Median seconds of each of the functions, run turn about.
std::vector<double> time_together(const Options& o, const std::vector<std::function<void()>>& functions) {
  std::vector<std::vector<double>> seconds(functions.size());
  for (int r = -1; r < o.repeats; ++r) {  // round -1 warms up
    for (std::size_t i = 0; i < functions.size(); ++i) {
      const double start = now(o.cpu_clock);
      functions[i]();
      if (r >= 0) seconds[i].push_back(now(o.cpu_clock) - start);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& s : seconds) {
    std::sort(s.begin(), s.end());
    medians.push_back(s[s.size() / 2]);
  }
  return medians;
}

/// A weight of random codes with the arrays a checkpoint would map.
struct Weight {
  std::vector<std::uint32_t> codes;
  std::vector<std::uint16_t> scales, biases;
  LinearHandle handle;

  Weight(const Options& o, Ops& ops, std::uint32_t seed) {
    codes.resize(static_cast<std::size_t>(o.out) * static_cast<std::size_t>(o.in) / 32 *
                 static_cast<std::size_t>(o.bits));
    for (std::uint32_t& c : codes) c = seed = seed * 1664525u + 1013904223u;
    scales.assign(static_cast<std::size_t>(o.out) * static_cast<std::size_t>(o.in / o.group),
                  f32_to_bf16(0.01f));
    biases.assign(scales.size(), f32_to_bf16(-0.07f));
    LinearSource s{.name = "bench",
                   .format = WeightFormat::kAffine,
                   .experts = 1,
                   .out = o.out,
                   .in = o.in,
                   .expert_stride = 0,
                   .bits = o.bits,
                   .group = o.group};
    s.weight = codes.data();
    s.scales = scales.data();
    s.biases = biases.data();
    handle = ops.prepare_linear(s);
  }
};

void run(const Options& o) {
  CpuOptions options;
  options.threads = o.threads;
  options.isa = o.isa;
  const std::unique_ptr<Ops> ops = make_cpu_ops(options);
  ThreadPool pool(o.threads);

  // Enough weights to leave the caches between two uses of one.
  const double start = now(o.cpu_clock);
  std::vector<Weight> weights;
  std::size_t bytes = 0;
  while (weights.size() < 2 || bytes < (std::size_t{256} << 20)) {
    weights.emplace_back(o, *ops, static_cast<std::uint32_t>(weights.size()) + 1);
    bytes += weights.back().handle->owned_bytes();
  }
  const std::size_t weight_bytes = bytes / weights.size();
  fmt::print(
      "isa {}, threads {}, {} weights of [{}, {}] {} bit group {}, {:.0f} MB each, filled and packed in "
      "{:.2f} s\n",
      name_of(o.isa), o.threads, weights.size(), o.out, o.in, o.bits, o.group,
      static_cast<double>(weight_bytes) * 1e-6, now(o.cpu_clock) - start);

  ReadProbe probe(std::size_t{256} << 20);
  const MultiplyProbe multiply = multiply_probe(o.isa);
  constexpr std::int64_t kRounds = 2'000'000;
  fmt::print("{:>5} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>8}\n", "rows", "ms", "GB/s", "read GB/s",
             "of read", "GMAC/s", "of peak", "x first");
  double single = 0;
  std::size_t next = 0;
  for (const int rows : o.rows) {
    std::vector<float> x(static_cast<std::size_t>(rows) * static_cast<std::size_t>(o.in)),
        y(static_cast<std::size_t>(rows) * static_cast<std::size_t>(o.out));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8.0f;
    const auto apply = [&] {
      const LinearParams::Target target{
          weights[next++ % weights.size()].handle.get(), make_view(y.data(), DType::kF32, rows, o.out), {}};
      ops->linear({.x = make_view(x.data(), DType::kF32, rows, o.in), .targets = {&target, 1}});
    };
    const auto read = [&] {
      pool.parallel_for(o.threads, [&](std::int64_t begin, std::int64_t, int) {
        probe.read(static_cast<int>(begin), o.threads);
      });
    };
    std::int64_t done = 0;
    const auto peak = [&] {
      pool.parallel_for(o.threads, [&](std::int64_t begin, std::int64_t, int) {
        const std::int64_t n = multiply.run(kRounds);
        if (begin == 0) done = n * o.threads;
      });
    };
    const std::vector<double> s = time_together(o, {apply, read, peak});
    if (single == 0) single = s[0];
    const double read_rate = static_cast<double>(probe.bytes()) / s[1],
                 rate = static_cast<double>(weight_bytes) / s[0];
    const double macs = static_cast<double>(rows) * o.out * o.in / s[0],
                 peak_macs = static_cast<double>(done) / s[2];
    fmt::print("{:>5} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>10.1f} {:>9.2f} {:>8.2f}\n", rows, 1e3 * s[0],
               1e-9 * rate, 1e-9 * read_rate, rate / read_rate, 1e-9 * macs, macs / peak_macs, s[0] / single);
  }
}

}  // namespace
}  // namespace mererun::bench

int main(int argc, char** argv) {
  mererun::bench::run(mererun::bench::parse(argc, argv));
  return 0;
}
