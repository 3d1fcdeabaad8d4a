// Which backend a request gets, what it says where there is no GPU, and the budget of one that is there.
#include "engine/backend.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/device_info.h"
#include "engine/engine.h"
#include "engine/exactness.h"
#include "engine/synthetic_model.h"
#include "kernels/cuda/weight_layout.h"
#include "tests/engine/tiny_engine.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

using ::testing::HasSubstr;
using namespace mererun::testing;

const CudaPresence kNoDriver{.devices = {}, .absence = "no CUDA driver on this machine"};
const CudaPresence kOneGpu{.devices = {{.name = "Big GPU", .major = 9, .minor = 0}}, .absence = {}};
const CudaPresence kOldAndNew{
    .devices = {{.name = "Old GPU", .major = 7, .minor = 5}, {.name = "New GPU", .major = 12, .minor = 0}},
    .absence = {}};

/// The error of an action that must fail.
template <typename Action>
Error error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kInternal, "");
}

TEST(Backend, AutoTakesAGpuThatServes) {
  const BackendChoice one = choose_backend(Backend::kAuto, 0, kOneGpu);
  EXPECT_EQ(one.backend, Backend::kCuda);
  EXPECT_EQ(one.reason, "Big GPU");
  EXPECT_EQ(choose_backend(Backend::kAuto, 1, kOldAndNew).backend, Backend::kCuda);
}

TEST(Backend, AutoFallsBackAndSaysWhy) {
  const BackendChoice none = choose_backend(Backend::kAuto, 0, kNoDriver);
  EXPECT_EQ(none.backend, Backend::kCpu);
  EXPECT_EQ(none.reason, "no CUDA driver on this machine");
  const BackendChoice old = choose_backend(Backend::kAuto, 0, kOldAndNew);
  EXPECT_EQ(old.backend, Backend::kCpu);
  EXPECT_EQ(old.reason, "expected compute capability 8.0 or later, got 7.5 (Old GPU)");
  const BackendChoice beyond = choose_backend(Backend::kAuto, 3, kOneGpu);
  EXPECT_EQ(beyond.backend, Backend::kCpu);
  EXPECT_EQ(beyond.reason, "expected device 0, the only GPU, got device 3");
}

TEST(Backend, ANamedGpuIsThatGpuOrAnError) {
  EXPECT_EQ(choose_backend(Backend::kCuda, 0, kOneGpu).backend, Backend::kCuda);
  const Error none = error_of([] { choose_backend(Backend::kCuda, 0, kNoDriver); });
  EXPECT_EQ(none.code(), ErrorCode::kUnsupported);
  EXPECT_STREQ(none.what(), "backend cuda: expected a CUDA GPU, got no CUDA driver on this machine");
  EXPECT_THAT(none.hint(), HasSubstr("--backend cpu"));
  EXPECT_STREQ(error_of([] { choose_backend(Backend::kCuda, 2, kOldAndNew); }).what(),
               "backend cuda: expected device 0..1, got device 2");
  EXPECT_STREQ(error_of([] { choose_backend(Backend::kCuda, -1, kOneGpu); }).what(),
               "backend cuda: expected device 0, the only GPU, got device -1");
  EXPECT_STREQ(error_of([] { choose_backend(Backend::kCuda, 0, kOldAndNew); }).what(),
               "backend cuda: expected compute capability 8.0 or later, got 7.5 (Old GPU)");
}

TEST(Backend, TheCpuIsNeverReplaced) {
  EXPECT_EQ(choose_backend(Backend::kCpu, 0, kOneGpu).backend, Backend::kCpu);
  EXPECT_EQ(choose_backend(Backend::kReference, 0, kOneGpu).backend, Backend::kReference);
  EXPECT_EQ(make_backend(Backend::kCpu, 7, {})->name(), "cpu");
}

/// On this machine, whatever it has: the same answer from choice, operations and the exactness report.
TEST(Backend, ThisMachine) {
  const CudaPresence present = find_cuda_devices();
  EXPECT_EQ(static_cast<int>(present.devices.size()), cuda_device_count());
  EXPECT_EQ(present.devices.empty(), !present.absence.empty());
  const Backend chosen = choose_backend(Backend::kAuto, 0).backend;
  const auto ops = make_backend(Backend::kAuto, 0, {});
  EXPECT_EQ(ops->name(), name_of(chosen));
  EXPECT_EQ(exactness_of(Backend::kAuto, 0).backend, ops->name());
  EXPECT_EQ(describe_gpu(*ops).has_value(), chosen == Backend::kCuda);
  EXPECT_FALSE(describe_device(*ops).driver.empty());
  if (!present.devices.empty()) return;
  EXPECT_EQ(error_of([] { make_backend(Backend::kCuda, 0, {}); }).code(), ErrorCode::kUnsupported);
  EXPECT_EQ(error_of([] { exactness_of(Backend::kCuda, 0); }).code(), ErrorCode::kUnsupported);
  EXPECT_EQ(error_of([] { make_cuda_ops({}); }).code(), ErrorCode::kUnsupported);
}

TEST(Backend, EngineAndSyntheticModelRefuseAMissingGpuBeforeLoading) {
  const int beyond = cuda_device_count();  // an index that no machine has
  EngineOptions options = engine_options_for(bundled("demo-dense-4bit"), 0);
  options.backend = Backend::kCuda;
  options.device = beyond;
  EXPECT_EQ(error_of([&] { Engine::load(options); }).code(), ErrorCode::kUnsupported);
  SyntheticOptions synthetic{.geometry = "q38-27b", .layers = 4, .backend = Backend::kCuda, .device = beyond};
  EXPECT_EQ(error_of([&] { SyntheticModel model(synthetic); }).code(), ErrorCode::kUnsupported);
}

TEST(Budget, CountsRecordsOfSixteenRows) {
  LinearSource s;
  s.format = WeightFormat::kAffine;
  s.out = 17;
  s.in = 128;
  s.bits = 4;
  s.group = 64;
  EXPECT_EQ(cuda::linear_bytes(s), 2u * 2u * 576u);  // tiles, groups, 16 x 64 codes and sides
  s.bits = 5;
  EXPECT_EQ(cuda::linear_bytes(s), 2u * 2u * 1088u);
  s.format = WeightFormat::kDense;
  EXPECT_EQ(cuda::linear_bytes(s), 17u * 256u);
}

TEST(Budget, GpuNeedHoldsEveryWeightAndNamesItsParts) {
  LoadOptions load;
  const HostWeights host = load_host_weights(bundled("demo-moe-4bit"), load);
  const MemoryLimits limits{.prefill_chunk = 64, .verify_width = 8};
  const MemoryNeed gpu = gpu_memory_needed(host, 1024, limits);
  const MemoryNeed cpu = memory_needed(host, 1024, limits);
  std::size_t stored = 0;
  for_each_linear(
      host, [&](std::string_view, const LinearSource& s) { stored += static_cast<std::size_t>(s.bytes()); });
  EXPECT_GE(gpu.weights, stored);
  EXPECT_LT(gpu.weights, 2 * stored);
  EXPECT_EQ(gpu.kv, cpu.kv);
  EXPECT_EQ(gpu.arena, cpu.arena);
  EXPECT_EQ(gpu.state, cpu.state);
  EXPECT_EQ(memory_needed(host, 1024, limits, Backend::kCuda).weights, gpu.weights);
  EXPECT_EQ(memory_needed(host, 1024, limits, Backend::kCpu).weights, cpu.weights);
  EXPECT_EQ(sequence_bytes(host, 1024), cpu.state + cpu.kv);
  EXPECT_EQ(gpu.total(), gpu.weights + gpu.arena + gpu.state + gpu.kv + gpu.scratch);
  EXPECT_EQ(misfit_of(gpu, gpu.total()), std::nullopt);
  EXPECT_EQ(misfit_of(gpu, gpu.total() - 1), fmt::format("{} free", gpu.total() - 1));
  EXPECT_THAT(budget_text(gpu), HasSubstr(fmt::format("KV of 1024 positions {}", gpu.kv)));
  if (cuda_device_count() == 0) return;
  Model model(make_cuda_ops({}), load_host_weights(bundled("demo-moe-4bit"), load), {});
  EXPECT_EQ(model.weights().owned_bytes, gpu.weights);
}

}  // namespace
}  // namespace mererun
