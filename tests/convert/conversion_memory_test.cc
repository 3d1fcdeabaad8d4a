// The memory of a conversion does not grow with the model: every layout whose pages could stay, several times
// the bound.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "convert/convert.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun::testing {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// Two chunks of f32 values, a chunk of the source and of the result, windows of 16 MiB for the checksum, and
/// some.
constexpr std::uint64_t kBound = 64 * kMiB;

/// A field of /proc/self/status in bytes.
std::uint64_t own_status(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

/// How much the resident memory of a process grows by `action`, at its highest, in bytes: in a child, whose
/// record no earlier test has set.
template <typename Action>
std::uint64_t peak_growth(const Action& action) {
  int ends[2] = {};
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::uint64_t grown = 0;
    try {
      const std::uint64_t before = own_status("VmRSS");
      action();
      grown = own_status("VmHWM") - before;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(write(ends[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
  }
  close(ends[1]);
  std::uint64_t grown = 0;
  EXPECT_EQ(read(ends[0], &grown, sizeof grown), static_cast<ssize_t>(sizeof grown));
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_GT(grown, 0u) << "the conversion failed";
  return grown;
}

/// Some axes made longer. What a longer tensor holds is zeros, which take no room on disk.
struct Longer {
  std::map<std::int64_t, std::int64_t> axes;
  std::map<std::string, int> config;

  void apply(TinyFiles& files) const {
    for (auto& [file, tensors] : files.weights) {
      for (StoredTensor& tensor : tensors) {
        std::uint64_t bytes = size_of(tensor.dtype);
        for (std::int64_t& axis : tensor.shape) {
          if (const auto found = axes.find(axis); found != axes.end()) axis = found->second;
          bytes *= static_cast<std::uint64_t>(axis);
        }
        tensor.zeros = bytes - tensor.data.size();
      }
    }
    Json text = Json::parse(files.texts["config.json"]);
    for (const auto& [key, value] : config) text["text_config"][key] = value;
    files.texts["config.json"] = text.dump();
  }
};

/// Deals the tensors out to three files, with an index.
void split(TinyFiles& files) {
  std::vector<StoredTensor> all = std::move(files.weights.at("model.safetensors"));
  files.weights.clear();
  Json map;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string file = "model-" + std::to_string(i % 3 + 1) + ".safetensors";
    map[all[i].name] = file;
    files.weights[file].push_back(std::move(all[i]));
  }
  files.texts["model.safetensors.index.json"] = Json{{"weight_map", map}}.dump();
}

/// A mixture of experts with a hidden size of 512 in three files of 470 MB in all.
fs::path write_large_checkpoint(const fs::path& folder, TinyExperts layout) {
  TinySpec spec = hugging_face(tiny_moe());
  spec.hidden = 512;
  spec.vocabulary = 352;
  spec.moe_intermediate = 160;
  spec.shared_intermediate = 224;
  spec.expert_layout = spec.head_expert_layout = layout;
  TinyFiles files = make_tiny_checkpoint(spec);
  const Longer longer{.axes = {{352, 65'536}, {160, 1024}, {320, 2048}, {224, 4104}},
                      .config = {{"vocab_size", 65'536},
                                 {"moe_intermediate_size", 1024},
                                 {"shared_expert_intermediate_size", 4104}}};
  longer.apply(files);
  files.texts["mererun.json"] = R"({"format": 1, "draft_vocabulary": [[0, 29999], [40000, 64999]]})";
  split(files);
  files.write(folder);
  return folder;
}

class ConversionMemory : public ::testing::TestWithParam<TinyExperts> {};

TEST_P(ConversionMemory, IsBoundedWhateverTheModel) {
  const TempFolder folder;
  ConversionOptions options;
  options.source = write_large_checkpoint(folder / "source", GetParam());
  options.output = folder / "output";
  options.max_shard_bytes = 40 * kMiB;
  options.threads = 2;
  const std::uint64_t grown = peak_growth([&] {
    const ConversionReport report = convert_checkpoint(options);
    if (report.source_bytes < 5 * kBound || report.shards < 3 || report.draft_rows == 0)
      throw std::runtime_error("not the conversion that was meant");
  });
  RecordProperty("peakGrowthKiB", static_cast<int>(grown / 1024));
  EXPECT_LT(grown, kBound);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ConversionMemory,
                         ::testing::Values(TinyExperts::kFused, TinyExperts::kTransposed,
                                           TinyExperts::kPerExpert),
                         [](const auto& layout) {
                           return std::string(layout.param == TinyExperts::kFused        ? "Fused"
                                              : layout.param == TinyExperts::kTransposed ? "Transposed"
                                                                                         : "PerExpert");
                         });

}  // namespace
}  // namespace mererun::testing
