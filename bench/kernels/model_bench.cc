// Shares of the machine that whole models of random weights reach on the CPU: a prompt, serial decoding and
// verification at several widths, each between two measurements of the read bandwidth and of the integer
// multiply-add rate, and what each kind of call took of it.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "bench/kernels/machine_peaks.h"
#include "bench/kernels/timed_ops.h"
#include "cli/option_table.h"
#include "cli/report_parts.h"
#include "engine/benchmark_verification.h"
#include "engine/memory_usage.h"
#include "kernels/cpu/cpu_isa.h"
#include "model/synthetic_weights.h"

namespace mererun::bench {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kSeed = 1;
constexpr int kWidestPass = 32;

struct Options {
  std::vector<std::string> models = {};  // GEOMETRY:LAYERS
  std::vector<std::int64_t> widths = {1, 2, 4, 8, 9, 16, 32};
  std::int64_t tokens = 32, prompt = 512, trials = 1;
  std::int64_t threads = 0;
  std::string isa = "auto";
  bool json = false;
};

/// What the machine does at one moment.
struct Peaks {
  double read = 0;      // bytes a second
  double multiply = 0;  // int16 multiply-adds a second
};

/// Measures the peaks on as many threads as the model uses.
class Machine {
 public:
  Machine(int threads, CpuIsa isa)
      : threads_(threads == 0 ? physical_core_count() : threads),
        probe_(std::size_t{256} << 20),
        multiply_(multiply_probe(isa)) {}

  int threads() const { return threads_; }
  std::string_view multiply_name() const { return multiply_.name; }
  Peaks measure() {
    ThreadPool pool(threads_);  // gone afterwards: threads that wait for more would disturb the model's
    const auto on_every_thread = [&](auto&& f) {
      pool.parallel_for(threads_,
                        [&](std::int64_t thread, std::int64_t, int) { f(static_cast<int>(thread)); });
    };
    std::vector<double> read, multiply;
    for (int i = 0; i < kRepeats; ++i) {
      Stopwatch watch;
      on_every_thread([&](int thread) { probe_.read(thread, threads_); });
      read.push_back(static_cast<double>(probe_.bytes()) / watch.restart());
      std::int64_t done = 0;
      on_every_thread([&](int thread) {
        const std::int64_t n = multiply_.run(kRounds);
        if (thread == 0) done = n * threads_;
      });
      multiply.push_back(static_cast<double>(done) / watch.seconds());
    }
    return {median(std::move(read)), median(std::move(multiply))};
  }

 private:
  static constexpr int kRepeats = 5;
  static constexpr std::int64_t kRounds = 1'000'000;

  static double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + kRepeats / 2);
    return values[kRepeats / 2];
  }

  int threads_;
  ReadProbe probe_;
  MultiplyProbe multiply_;
};

/// One measured stretch of passes.
struct Stretch {
  std::string kind;  // "prefill", "serial", "verify"
  int width = 1;
  int tokens = 0;
  double seconds = 0;
  std::optional<bool> parity = {};  // of a verification with the serial logits
  Peaks before = {}, after = {};
  std::map<std::string, CallTotals> calls = {};

  double rate() const { return tokens / seconds; }
  Peaks peaks() const { return {(before.read + after.read) / 2, (before.multiply + after.multiply) / 2}; }
  CallTotals total() const {
    CallTotals all;
    for (const auto& entry : calls) all += entry.second;
    return all;
  }
  /// What the passes read and multiplied, in `seconds`: all calls but the choice behind the prompt, one row
  /// through the output matrix, and what a commit replays.
  CallTotals of_passes() const {
    CallTotals all = total();
    all.seconds = seconds;
    if (const auto replay = calls.find("delta_replay"); replay != calls.end())
      all.bytes -= replay->second.bytes;
    const auto head = calls.find("linear lm_head");
    if (kind == "prefill" || head == calls.end()) return all;
    all.bytes -= head->second.bytes / static_cast<double>(head->second.calls);
    all.products -= head->second.products / (tokens + 1);
    return all;
  }
};

struct ModelRun {
  std::string id;
  int layers = 0;
  double load_seconds = 0;
  double weight_bytes = 0;
  double experts_per_slice_of_8 = 0;
  std::vector<Stretch> stretches = {};
  MemoryUsage memory = {};
};

/// "q38-27b:16" as its geometry.
SyntheticGeometry geometry_of(const std::string& model) {
  const auto colon = model.find(':');
  std::optional<int> layers;
  if (colon != std::string::npos) layers = std::atoi(model.c_str() + colon + 1);
  return make_synthetic_geometry(model.substr(0, colon), layers);
}

std::vector<TokenId> random_ids(const ModelConfig& config, std::int64_t n, std::uint64_t stream) {
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < n; ++i) {
    ids.push_back(static_cast<TokenId>(synthetic_bits(kSeed + stream, static_cast<std::uint64_t>(i)) %
                                       static_cast<std::uint64_t>(config.vocabulary)));
  }
  return ids;
}

/// Runs `body`, which returns what it measured, between two measurements of the machine.
template <typename F>
void measure(Machine& machine, TimedOps& ops, std::vector<Stretch>& stretches, F&& body) {
  const Peaks before = machine.measure();
  ops.take();
  Stretch stretch = body();
  stretch.calls = ops.take();
  stretch.before = before;
  stretch.after = machine.measure();
  stretches.push_back(std::move(stretch));
}

ModelRun run_model(const Options& o, Machine& machine, const std::string& name) {
  const Stopwatch loading;
  const SyntheticGeometry geometry = geometry_of(name);
  SyntheticWeights weights = make_synthetic_weights(geometry.config, kSeed);
  auto timed = std::make_unique<TimedOps>(make_cpu_ops(
      {.threads = static_cast<int>(o.threads), .isa = parse_cpu_isa(o.isa), .on_converted = {}}));
  TimedOps& ops = *timed;
  ModelLimits limits;
  limits.max_rows = static_cast<int>(std::max<std::int64_t>(o.prompt, kWidestPass));
  Model model(std::move(timed), std::move(weights.host), limits);
  ModelRun run{.id = geometry.name, .layers = geometry.config.layers};
  run.load_seconds = loading.seconds();

  const std::atomic<bool> cancelled = false;
  const std::vector<TokenId> prompt = random_ids(geometry.config, o.prompt, 0);
  std::optional<VerificationBenchmark> benchmark;
  measure(machine, ops, run.stretches, [&]() -> Stretch {
    const Stopwatch watch;
    benchmark.emplace(model, prompt, cancelled);
    return {.kind = "prefill",
            .width = limits.max_rows,
            .tokens = static_cast<int>(o.prompt),
            .seconds = watch.seconds()};
  });
  VerificationOracle oracle;
  measure(machine, ops, run.stretches, [&]() -> Stretch {
    oracle = benchmark->forced_oracle(random_ids(geometry.config, o.tokens, 1));
    return {.kind = "serial", .tokens = static_cast<int>(o.tokens), .seconds = oracle.seconds};
  });
  run.experts_per_slice_of_8 = distinct_experts_per_slice(oracle, 8);
  for (int trial = 1; trial <= o.trials; ++trial) {
    std::vector<std::int64_t> widths = o.widths;
    if (trial % 2 == 0) std::ranges::reverse(widths);
    for (const std::int64_t width : widths) {
      measure(machine, ops, run.stretches, [&]() -> Stretch {
        const VerificationRow row = benchmark->verify(oracle, static_cast<int>(width), trial);
        return {.kind = "verify",
                .width = row.width,
                .tokens = row.verified_tokens,
                .seconds = row.seconds,
                .parity = row.passes_parity()};
      });
    }
  }
  run.weight_bytes = static_cast<double>(ops.weight_bytes());
  run.memory = memory_usage().value_or(MemoryUsage{});
  return run;
}

/// Verified tokens a second over those of the same trial at width 1; 0 without one.
double ratio_to_one(const ModelRun& run, const Stretch& stretch) {
  double nearest = 0;
  std::ptrdiff_t distance = 0;
  for (const Stretch& other : run.stretches) {
    if (other.kind != "verify" || other.width != 1) continue;
    const std::ptrdiff_t apart = std::abs(&other - &stretch);
    if (nearest == 0 || apart < distance) {
      nearest = other.rate();
      distance = apart;
    }
  }
  return nearest == 0 ? 0 : stretch.rate() / nearest;
}

Json calls_json(const CallTotals& totals, const Stretch& stretch, double all_seconds) {
  Json out{{"calls", totals.calls}, {"seconds", totals.seconds}, {"share", totals.seconds / all_seconds}};
  if (totals.bytes > 0) out["shareOfRead"] = totals.bytes / totals.seconds / stretch.peaks().read;
  if (totals.products > 0)
    out["shareOfMultiply"] = totals.products / totals.seconds / stretch.peaks().multiply;
  return out;
}

Json stretch_json(const ModelRun& run, const Stretch& stretch) {
  const double all_seconds = stretch.total().seconds;
  const CallTotals passes = stretch.of_passes();
  Json out{
      {"kind", stretch.kind},
      {"width", stretch.width},
      {"tokens", stretch.tokens},
      {"seconds", stretch.seconds},
      {"tokensPerSecond", stretch.rate()},
      {"readBytesPerSecond", {{"before", stretch.before.read}, {"after", stretch.after.read}}},
      {"multiplyAddsPerSecond", {{"before", stretch.before.multiply}, {"after", stretch.after.multiply}}},
      {"shareOfRead", passes.bytes / passes.seconds / stretch.peaks().read},
      {"shareOfMultiply", passes.products / passes.seconds / stretch.peaks().multiply},
      {"calls", Json::object()}};
  if (stretch.parity) out["logitsParity"] = *stretch.parity;
  if (stretch.kind == "verify") out["ratioToWidthOne"] = ratio_to_one(run, stretch);
  for (const auto& [kind, totals] : stretch.calls)
    out["calls"][kind] = calls_json(totals, stretch, all_seconds);
  return out;
}

Json model_json(const ModelRun& run) {
  Json out{{"model", "synthetic:" + run.id},
           {"layers", run.layers},
           {"weightBytes", run.weight_bytes},
           {"loadSeconds", run.load_seconds},
           {"residentBytes", run.memory.resident},
           {"peakResidentBytes", run.memory.peak},
           {"passes", Json::array()}};
  if (run.experts_per_slice_of_8 > 0) out["distinctExpertsPerBlockOf8"] = run.experts_per_slice_of_8;
  for (const Stretch& stretch : run.stretches) out["passes"].push_back(stretch_json(run, stretch));
  return out;
}

void print_stretch(const ModelRun& run, const Stretch& stretch) {
  const double all_seconds = stretch.total().seconds;
  const CallTotals passes = stretch.of_passes();
  const Peaks peaks = stretch.peaks();
  fmt::print("{:<7} {:>3} {:>8.2f} tokens/s", stretch.kind, stretch.width, stretch.rate());
  if (stretch.kind == "verify") fmt::print(" ({:.2f})", ratio_to_one(run, stretch));
  fmt::print("  read {:.2f} of {:.1f} to {:.1f} GB/s, multiply-adds {:.2f} of {:.0f} to {:.0f} billion{}\n",
             passes.bytes / passes.seconds / peaks.read, 1e-9 * stretch.before.read,
             1e-9 * stretch.after.read, passes.products / passes.seconds / peaks.multiply,
             1e-9 * stretch.before.multiply, 1e-9 * stretch.after.multiply,
             stretch.parity.value_or(true) ? "" : "  DIFFERS");
  std::vector<std::pair<std::string, CallTotals>> calls(stretch.calls.begin(), stretch.calls.end());
  std::ranges::sort(calls, std::greater(), [](const auto& call) { return call.second.seconds; });
  for (const auto& [kind, totals] : calls) {
    if (totals.seconds < 0.01 * all_seconds) break;
    fmt::print("    {:<28} {:>4.1f}%", kind, 100 * totals.seconds / all_seconds);
    if (totals.bytes > 0) fmt::print("  read {:.2f}", totals.bytes / totals.seconds / peaks.read);
    if (totals.products > 0)
      fmt::print("  multiply-adds {:.2f}", totals.products / totals.seconds / peaks.multiply);
    fmt::print("\n");
  }
}

void print_model(const ModelRun& run) {
  fmt::print("{}, {} layers, weights {:.2f} GB, loaded in {:.1f} s, resident {:.2f} GB, at most {:.2f}",
             run.id, run.layers, 1e-9 * run.weight_bytes, run.load_seconds,
             1e-9 * static_cast<double>(run.memory.resident), 1e-9 * static_cast<double>(run.memory.peak));
  if (run.experts_per_slice_of_8 > 0)
    fmt::print(", {:.1f} experts a slice of 8 rows", run.experts_per_slice_of_8);
  fmt::print("\n");
  for (const Stretch& stretch : run.stretches) print_stretch(run, stretch);
}

OptionTable option_table(Options& o) {
  OptionTable table;
  table.texts({.names = "--model",
               .value = "GEOMETRY:LAYERS",
               .help = "a synthetic model; may be repeated",
               .default_text = "q38-27b:16 and ornith-35b:12"},
              o.models);
  table.integers(
      {.names = "--widths", .value = "W,W,...", .help = "rows of a verification", .default_text = ""},
      {1, kWidestPass}, true, o.widths);
  table.integer({.names = "--tokens", .value = "N", .help = "tokens a width", .default_text = "32"},
                {.low = 1}, o.tokens);
  table.integer({.names = "--prompt", .value = "N", .help = "tokens of the prompt", .default_text = "512"},
                {1, 4096}, o.prompt);
  table.integer({.names = "--trials", .value = "N", .help = "passes over the widths", .default_text = "1"},
                {.low = 1}, o.trials);
  table.integer({.names = "--threads", .value = "N", .help = "CPU threads", .default_text = "physical cores"},
                {1, 1024}, o.threads);
  table.text({.names = "--cpu-isa", .value = "NAME", .help = "instruction set", .default_text = "auto"},
             o.isa);
  table.toggle({.names = "--json", .value = {}, .help = "report as JSON", .default_text = {}}, o.json);
  return table;
}

int run(const std::vector<std::string>& arguments) {
  Options o;
  const OptionTable table = option_table(o);
  if (parse_arguments("model_bench", table, arguments).wants_help) {
    for (const OptionSpec& option : table.options())
      fmt::print("{} {}  {} ({})\n", option.text.names, option.text.value, option.text.help,
                 option.text.default_text);
    return 0;
  }
  if (o.models.empty()) o.models = {"q38-27b:16", "ornith-35b:12"};
  const CpuIsa isa = cpu::select_kernels(parse_cpu_isa(o.isa)).isa;
  Machine machine(static_cast<int>(o.threads), isa);
  EnvironmentCheck environment;
  Json models = Json::array();
  bool parity = true;
  for (const std::string& name : o.models) {
    const ModelRun done = run_model(o, machine, name);
    for (const Stretch& stretch : done.stretches) parity = parity && stretch.parity.value_or(true);
    o.json ? models.push_back(model_json(done)) : print_model(done);
  }
  const EnvironmentReport around = environment.finish();
  if (!o.json) {
    for (const std::string& reason : around.invalid_reasons()) fmt::print("timings not valid: {}\n", reason);
    return parity ? 0 : 1;
  }
  DeviceInfo device = describe_host();
  device.instruction_set = name_of(isa);
  const Json out{{"schemaVersion", 1},
                 {"build", build_json(describe_build())},
                 {"device", device_json(device)},
                 {"threads", machine.threads()},
                 {"multiplyAddProbe", std::string(machine.multiply_name())},
                 {"environment", environment_json(around)},
                 {"invalidReasons", around.invalid_reasons()},
                 {"models", models}};
  fmt::print("{}\n", out.dump(2));
  return parity ? 0 : 1;
}

}  // namespace
}  // namespace mererun::bench

int main(int argc, char** argv) {
  try {
    return mererun::bench::run({argv + 1, argv + argc});
  } catch (const mererun::Error& error) {
    fmt::print(stderr, "model_bench: {}\n", error.what());
    return 2;
  }
}
