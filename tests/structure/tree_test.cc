// The rules applied to the checkout itself.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>

#include "tests/structure/rules.h"

namespace mererun::testing {

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = MERERUN_SOURCE_DIR;

const std::vector<SourceFile>& sources() {
  static const std::vector<SourceFile> kSources = read_sources(kRoot, "src");
  return kSources;
}

std::string joined(const Violations& violations) {
  std::string text;
  for (const std::string& violation : violations) text += violation + "\n";
  return text;
}

void expect_kept(Violations (*rule)(const SourceFile&), const std::vector<SourceFile>& files) {
  ASSERT_FALSE(files.empty());
  Violations violations;
  for (const SourceFile& file : files) {
    const Violations found = rule(file);
    violations.insert(violations.end(), found.begin(), found.end());
  }
  EXPECT_EQ(joined(violations), "");
}

std::vector<SourceFile> tests_and_sources() {
  std::vector<SourceFile> files = sources();
  for (const char* folder : {"tests", "bench"}) {
    const auto more = read_sources(kRoot, folder);
    files.insert(files.end(), more.begin(), more.end());
  }
  return files;
}

SourceFile read_text(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {fs::relative(path, kRoot).generic_string(),
          std::string(std::istreambuf_iterator<char>(stream), {})};
}

std::vector<SourceFile> build_files() {
  std::vector<SourceFile> files = {read_text(kRoot / "CMakePresets.json"),
                                   read_text(kRoot / "CMakeLists.txt")};
  for (const char* folder : {"cmake", "src", "tests", "bench"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (entry.path().filename() == "CMakeLists.txt" || entry.path().extension() == ".cmake") {
        files.push_back(read_text(entry.path()));
      }
    }
  }
  return files;
}

TEST(Tree, IncludesFollowTheFolderArrows) { expect_kept(check_include_arrows, sources()); }
TEST(Tree, HeadersStartWithPragmaOnce) { expect_kept(check_pragma_once, tests_and_sources()); }
TEST(Tree, FilesAreShort) { expect_kept(check_length, tests_and_sources()); }
TEST(Tree, HeadersStayLight) { expect_kept(check_heavy_headers, sources()); }
TEST(Tree, OnlyTheServerKnowsSocketsAndNothingConnects) { expect_kept(check_network, sources()); }

TEST(Tree, OnlyTheCommandLineReadsTheEnvironment) { expect_kept(check_environment, sources()); }
TEST(Tree, OnlyTheCommandLinePrintsResults) { expect_kept(check_stdout, sources()); }
TEST(Tree, DeviceCodeHasTheSameNamesInEveryFolder) { expect_kept(check_device_names, sources()); }
TEST(Tree, KernelsAndModelUseNoMathLibrary) { expect_kept(check_math_library, sources()); }
TEST(Tree, NothingReassociatesOrFusesInSources) { expect_kept(check_arithmetic_switches, sources()); }
TEST(Tree, NothingReassociatesOrFusesInBuildFiles) { expect_kept(check_arithmetic_switches, build_files()); }

/// The way by which a file reaches a header of CUDA's, through headers of this project; empty if by none.
std::string way_to_cuda(const std::string& path, const std::map<std::string, const SourceFile*>& files,
                        std::set<std::string>& seen) {
  const auto file = files.find(path);
  if (file == files.end() || !seen.insert(path).second) return {};
  for (const Include& include : includes_of(*file->second)) {
    if (include.is_system && include.target.starts_with("cuda")) return path + " > " + include.target;
    for (const std::string& own : {"src/" + include.target, include.target}) {
      const std::string way = include.is_system ? "" : way_to_cuda(own, files, seen);
      if (!way.empty()) return path + " > " + way;
    }
  }
  return {};
}

TEST(Tree, WhatIsBuiltWithoutCudaReachesNoHeaderOfIts) {  // a machine that has them does not notice
  const std::vector<SourceFile> all = tests_and_sources();
  std::map<std::string, const SourceFile*> files;
  for (const SourceFile& file : all) files[file.path] = &file;
  for (const char* only : {"src/kernels/cuda/launch.h", "src/device/cuda/cuda_memory.cc"}) {
    std::set<std::string> seen;
    EXPECT_NE(way_to_cuda(only, files, seen), "") << only << " is one that does";
  }
  for (const SourceFile& file : all) {
    if (!file.path.ends_with(".cc") || file.path.find("/cuda/") != std::string::npos) continue;
    std::set<std::string> seen;
    EXPECT_EQ(way_to_cuda(file.path, files, seen), "");
  }
}

TEST(Tree, SharedModelCodeKnowsNoFlashNextParts) {  // structure.family_isolation
  // What runs for every family; residual_form.cc chooses, weights.cc and the loaders bind.
  for (const char* name :
       {"decoder", "mtp_head", "layer", "attention", "gated_delta_net", "feed_forward", "plain_form"}) {
    for (const char* extension : {".h", ".cc"}) {
      const fs::path path = kRoot / "src/model" / (std::string(name) + extension);
      if (!fs::exists(path)) continue;
      const std::string text = read_text(path).text;
      for (const char* part : {"model/flash_", "model/ngram_", "kernels/streams.h", "kernels/ngram.h",
                               "kernels/sparse_attention.h"})
        EXPECT_EQ(text.find(part), std::string::npos) << path << " includes " << part;
    }
  }
}

TEST(Tree, ForwardingOpsHandOnEveryOperation) {  // one of the base class would hide the other backend's
  const std::string declared = read_text(kRoot / "src/kernels/ops.h").text;
  const std::string forwarded = read_text(kRoot / "src/kernels/forwarding_ops.h").text;
  const std::regex operation(R"(virtual void (\w+)\(const \w+Params& p\))");
  int found = 0;
  for (std::sregex_iterator it(declared.begin(), declared.end(), operation), end; it != end; ++it, ++found) {
    const std::string name = (*it)[1];
    EXPECT_NE(forwarded.find("forward(\"" + name + "\", &Ops::" + name + ", p)"), std::string::npos) << name;
  }
  EXPECT_GT(found, 20);
}

TEST(Tree, EveryFolderHasAShortReadme) {
  for (const auto& entry : fs::directory_iterator(kRoot / "src")) {
    if (!entry.is_directory()) continue;
    const fs::path readme = entry.path() / "README.md";
    ASSERT_TRUE(fs::exists(readme)) << readme;
    const auto lines = lines_of(read_text(readme).text);
    EXPECT_GE(lines.size(), 3u) << readme;
    EXPECT_LE(lines.size(), 15u) << readme;
  }
}

TEST(Tree, EveryTestFileIsBuilt) {
  std::string listed;
  for (const SourceFile& file : build_files()) {
    if (file.path.starts_with("tests/")) listed += file.text;
  }
  for (const SourceFile& file : read_sources(kRoot, "tests")) {
    const std::string name = fs::path(file.path).filename();
    if (name.ends_with("_test.cc")) {
      EXPECT_NE(listed.find(name), std::string::npos) << file.path << " is in no CMakeLists.txt";
    }
  }
}

}  // namespace

}  // namespace mererun::testing
