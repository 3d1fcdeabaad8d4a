// CUDA against the CPU's bits, and its speed:
//   mererun_cuda_check [--models DIR] [--golden DIR] [--out FILE] [--commit ID] STEP ...
// STEP: bits, long (4,944 tokens), generate (drafts), shapes (ops of true sizes), linears, 27b,
// 35b, 27b-64k, 35b-64k. Prints JSON lines; --out holds one array. Exit status 1: a difference.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>

#include "base/build_info.h"
#include "device/cuda/cuda_device.h"
#include "tests/cuda/checks.h"

namespace {

using mererun::cuda_check::Report;

struct Arguments {
  std::filesystem::path models = "models", golden = "tests/golden", out;
  std::string commit = "unknown";
  std::vector<std::string> steps;
};

Arguments parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const bool has_next = i + 1 < count;
    if (std::strcmp(values[i], "--models") == 0 && has_next) {
      arguments.models = values[++i];
    } else if (std::strcmp(values[i], "--golden") == 0 && has_next) {
      arguments.golden = values[++i];
    } else if (std::strcmp(values[i], "--out") == 0 && has_next) {
      arguments.out = values[++i];
    } else if (std::strcmp(values[i], "--commit") == 0 && has_next) {
      arguments.commit = values[++i];
    } else {
      arguments.steps.emplace_back(values[i]);
    }
  }
  return arguments;
}

/// Up to here every position of tiny-flash is visible to attention, from here on chosen blocks are.
constexpr int kTinyFlashDense = 67;

void run_bits(Report& report, const Arguments& arguments) {
  using mererun::cuda_check::check_model_bits;
  const std::filesystem::path flash = arguments.golden / "tiny-flash" / "mlx";
  check_model_bits(report, "tiny-flash", flash, 300, 256);
  // Windows of 4, 8, 16 and 32 rows that begin before the border and end behind it.
  for (const int before : {30, 13, 6, 3, 2, 1})
    check_model_bits(report, "tiny-flash", flash, kTinyFlashDense - before, 8);
  check_model_bits(report, "tiny-dense", arguments.golden / "tiny-dense" / "mlx", 300, 256);
  check_model_bits(report, "tiny-moe", arguments.golden / "tiny-moe" / "mlx", 300, 256);
  check_model_bits(report, "demo-dense-4bit", arguments.models / "demo-dense-4bit", 300, 256);
  check_model_bits(report, "demo-moe-4bit", arguments.models / "demo-moe-4bit", 300, 256);
}

void run_step(Report& report, const Arguments& arguments, const std::string& step) {
  using namespace mererun::cuda_check;
  if (step == "bits") return run_bits(report, arguments);
  if (step == "shapes") return check_true_shapes(report);
  if (step == "linears") return bench_linears(report);
  if (step == "27b" || step == "35b") return bench_model(report, step);
  if (step == "27b-64k" || step == "35b-64k") return bench_long_context(report, step.substr(0, 3));
  if (step == "generate") check_generation(report, "tiny-flash", arguments.golden / "tiny-flash" / "mlx");
  for (const char* name : {"demo-dense-4bit", "demo-moe-4bit"}) {
    if (step == "long") check_model_bits(report, name, arguments.models / name, 4944, 16);
    if (step == "generate") check_generation(report, name, arguments.models / name);
  }
}

int run(const Arguments& arguments) {
  Report report(arguments.out);
  const mererun::cuda::DeviceInfo device = mererun::cuda::device_info(0);
  report.add(
      {fmt::format(
           R"({{"receipt":"cuda check","commit":"{}","contractVersion":{},"device":"{}","computeCapability":)"
           R"("{}.{}","driver":{},"runtime":{},"memoryBytes":{}}})",
           arguments.commit, mererun::kNumericContractVersion, device.name, device.major, device.minor,
           device.driver, device.runtime, device.memory_bytes),
       true});
  for (const std::string& step : arguments.steps) run_step(report, arguments, step);
  return report.pass() ? 0 : 1;
}

}  // namespace

int main(int count, char** values) {
  try {
    return run(parse(count, values));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mererun_cuda_check: %s\n", error.what());
    return 70;
  }
}
