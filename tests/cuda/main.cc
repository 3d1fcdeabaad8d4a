// The CUDA backend against the CPU's bits, and its speed:
//   mererun_cuda_check [--models DIR] [--golden DIR] [--out FILE] [--commit ID] STEP ...
// STEP: bits (checkpoints), shapes (true 27B and 35B ops), linears, 27b, 35b. Prints one JSON object a line;
// --out writes them as one array. Exit status 1 if a comparison failed.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>

#include "device/cuda/cuda_device.h"
#include "kernels/numerics.h"
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

void run_bits(Report& report, const Arguments& arguments) {
  using mererun::cuda_check::check_model_bits;
  check_model_bits(report, "tiny-dense", arguments.golden / "tiny-dense" / "mlx", 300, 256);
  check_model_bits(report, "tiny-moe", arguments.golden / "tiny-moe" / "mlx", 300, 256);
  check_model_bits(report, "demo-dense-4bit", arguments.models / "demo-dense-4bit", 300, 256);
  check_model_bits(report, "demo-moe-4bit", arguments.models / "demo-moe-4bit", 300, 256);
}

int run(const Arguments& arguments) {
  Report report;
  const mererun::cuda::DeviceInfo device = mererun::cuda::device_info(0);
  report.add(
      {fmt::format(
           R"({{"receipt":"cuda check","commit":"{}","contractVersion":{},"device":"{}","computeCapability":)"
           R"("{}.{}","driver":{},"runtime":{},"memoryBytes":{}}})",
           arguments.commit, mererun::numerics::kContractVersion, device.name, device.major, device.minor,
           device.driver, device.runtime, device.memory_bytes),
       true});
  for (const std::string& step : arguments.steps) {
    if (step == "bits") run_bits(report, arguments);
    if (step == "shapes") mererun::cuda_check::check_true_shapes(report);
    if (step == "linears") mererun::cuda_check::bench_linears(report);
    if (step == "27b" || step == "35b") mererun::cuda_check::bench_model(report, step);
  }
  if (!arguments.out.empty()) {
    std::ofstream file(arguments.out);
    const char* separator = "[\n";
    for (const std::string& line : report.lines()) {
      file << separator << line;
      separator = ",\n";
    }
    file << "\n]\n";
  }
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
