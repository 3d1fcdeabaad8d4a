#include "tests/structure/rules.h"

#include <algorithm>
#include <map>
#include <regex>
#include <set>

namespace mererun::testing {

namespace {

std::string at(const SourceFile& file, int line, const std::string& what) {
  return file.path + ":" + std::to_string(line) + ": " + what;
}

// Lines of code (comments and literals blanked) on which the pattern occurs.
Violations matches(const SourceFile& file, const std::regex& pattern, const std::string& what) {
  Violations violations;
  int number = 0;
  for (const std::string& line : lines_of(without_comments_and_strings(file.text))) {
    ++number;
    std::smatch match;
    if (std::regex_search(line, match, pattern)) violations.push_back(at(file, number, what + match.str()));
  }
  return violations;
}

// The folders each folder of src/ may include, itself aside:
//   base -> device -> tensor -> kernels -> cache -> model -> decode -> engine -> { cli, server }
//   tensor -> checkpoint -> model;  base -> tokenizer -> grammar -> engine;  decode -> grammar;
//   model -> convert -> cli
// The front ends see the engine and base, nothing between; the program also the converter.
const std::map<std::string, std::set<std::string>>& allowed_includes() {
  static const std::map<std::string, std::set<std::string>> kAllowed = {
      {"base", {}},
      {"device", {"base"}},
      {"tensor", {"base", "device"}},
      {"checkpoint", {"base", "device", "tensor"}},
      {"tokenizer", {"base"}},
      {"kernels", {"base", "device", "tensor"}},
      {"cache", {"base", "device", "tensor", "kernels"}},
      {"model", {"base", "device", "tensor", "kernels", "cache", "checkpoint"}},
      {"convert", {"base", "device", "tensor", "kernels", "cache", "checkpoint", "model"}},
      {"decode", {"base", "device", "tensor", "kernels", "cache", "checkpoint", "model"}},
      {"grammar", {"base", "decode", "tokenizer"}},
      {"engine",
       {"base", "device", "tensor", "kernels", "cache", "checkpoint", "model", "decode", "tokenizer",
        "grammar"}},
      {"server", {"base", "engine"}},
      {"cli", {"base", "convert", "engine"}},
  };
  return kAllowed;
}

// `mere.run api serve` is the one command that starts the other front end.
bool starts_server(const SourceFile& file, const std::string& target_folder) {
  return file.path == "src/cli/api_serve.cc" && target_folder == "server";
}

}  // namespace

Violations check_include_arrows(const SourceFile& file) {
  Violations violations;
  const auto rule = allowed_includes().find(file.folder());
  if (rule == allowed_includes().end()) return {at(file, 1, "folder is not in the list of folders")};
  for (const Include& include : includes_of(file)) {
    if (include.is_system) continue;
    const std::string target = include.target.substr(0, include.target.find('/'));
    if (target == file.folder() || rule->second.contains(target) || starts_server(file, target)) continue;
    violations.push_back(at(file, include.line, file.folder() + "/ may not include " + include.target));
  }
  return violations;
}

Violations check_pragma_once(const SourceFile& file) {
  if (!file.is_header()) return {};
  for (const std::string& line : lines_of(without_comments_and_strings(file.text))) {
    if (line.find_first_not_of(' ') == std::string::npos) continue;
    if (line.starts_with("#pragma once")) return {};
    break;
  }
  return {at(file, 1, "the first line of code is not #pragma once")};
}

Violations check_length(const SourceFile& file) {
  constexpr std::size_t kNeedsReason = 500, kCeiling = 800;
  const auto lines = lines_of(file.text);
  if (lines.size() > kCeiling) return {at(file, 1, std::to_string(lines.size()) + " lines, at most 800")};
  if (lines.size() <= kNeedsReason) return {};
  const bool has_reason = std::any_of(lines.begin(), lines.begin() + 5, [](const std::string& line) {
    return line.find("Long because") != std::string::npos;
  });
  if (has_reason) return {};
  return {at(file, 1, std::to_string(lines.size()) + " lines without \"Long because ...\" at the top")};
}

Violations check_heavy_headers(const SourceFile& file) {
  if (!file.is_header()) return {};
  static const std::regex kCuda(
      R"(^(cuda|cublas|cudnn|nccl|nvrtc|nvml|nvtx|cooperative_groups|mma\.h|cub/|thrust/|cute/|cutlass/))");
  static const std::set<std::string> kJsonForward = {"checkpoint", "tokenizer", "model",  "convert",
                                                     "grammar",    "engine",    "server", "cli"};
  const bool cuda_folder =
      file.path.starts_with("src/device/cuda/") || file.path.starts_with("src/kernels/cuda/");
  Violations violations;
  for (const Include& include : includes_of(file)) {
    const std::string& target = include.target;
    const bool is_bad = (include.is_system && std::regex_search(target, kCuda) && !cuda_folder) ||
                        (target == "nlohmann/json_fwd.hpp" && !kJsonForward.contains(file.folder())) ||
                        (target.starts_with("nlohmann/") && target != "nlohmann/json_fwd.hpp") ||
                        (target.starts_with("boost/") && file.folder() != "server") ||
                        target.starts_with("CLI/");
    if (is_bad) violations.push_back(at(file, include.line, "a header may not include " + target));
  }
  return violations;
}

Violations check_environment(const SourceFile& file) {
  if (file.folder() == "cli") return {};
  static const std::regex kRead(R"(\b(getenv|secure_getenv|setenv|putenv|environ)\b)");
  return matches(file, kRead, "only cli/ reads the environment: ");
}

Violations check_network(const SourceFile& file) {
  static const std::regex kConnects(
      R"(\b(getaddrinfo|gethostbyname\w*|async_connect|curl_\w+)\b|(::|\.|->|^|[^\w])connect\s*\()");
  Violations violations = matches(file, kConnects, "the program opens no connection: ");
  for (const Include& include : includes_of(file)) {
    const std::string& target = include.target;
    const bool is_socket = target == "sys/socket.h" || target == "netdb.h" ||
                           target.starts_with("netinet/") || target.starts_with("curl/") ||
                           target.starts_with("boost/");
    if (is_socket && file.folder() != "server")
      violations.push_back(at(file, include.line, "only server/ knows sockets: " + target));
  }
  return violations;
}

Violations check_stdout(const SourceFile& file) {
  if (file.folder() == "cli") return {};
  static const std::regex kPrint(
      R"(\bstd::cout\b|\bstdout\b|(^|[^\w:.>])(std::)?(printf|puts|putchar)\s*\()");
  return matches(file, kPrint, "only cli/ prints results: ");
}

Violations check_math_library(const SourceFile& file) {
  if (file.folder() != "kernels" && file.folder() != "model") return {};
  // sqrt, fma, fabs, floor and the like are exact by IEEE 754 and stay allowed.
  const std::string names =
      "(exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sin|cos|sincos|tan|sinh|cosh|tanh|asin|acos|atan|atan2|"
      "asinh|acosh|atanh|cbrt|hypot|erf|erfc|tgamma|lgamma)";
  const std::string called = R"re([fl]?\s*\()re";
  static const std::regex kCalls(
      // std::exp( and ::exp(, or a bare exp( that would find the C library's
      R"re((\bstd::|(^|[^\w:])::|(^|[^\w:.>])))re" + names + called +
      // its name without a call: passed on, or a using-declaration
      R"re(|\bstd::)re" + names + R"re([fl]?\b)re" +
      // device intrinsics that approximate
      R"re(|\b__(exp|exp10|log|log2|log10|pow|sin|cos|sincos|tan)f\s*\(|\brsqrtf?\s*\(|\b__fdividef\s*\()re");
  Violations violations = matches(file, kCalls, "last bits differ between machines: ");
  int number = 0;
  for (const std::string& line : lines_of(file.text)) {
    ++number;
    const auto found = line.find(".approx");
    if (found != std::string::npos && line.find("//") > found) {
      violations.push_back(at(file, number, "approximate device instruction"));
    }
  }
  return violations;
}

Violations check_device_names(const SourceFile& file) {
  if (!file.path.ends_with(".cu")) return {};
  static const std::regex kUnnamed(R"(\bnamespace\s*\{)");
  return matches(file, kUnnamed, "named by the path of the source: ");
}

Violations check_arithmetic_switches(const SourceFile& file) {
  static const std::regex kSwitch(
      R"(-ffast-math|-Ofast|--?use_fast_math|-funsafe-math|-fassociative-math|-freciprocal-math|)"
      R"(-ffinite-math-only|-ffp-contract=(fast|on)|-fmad=true|FP_CONTRACT\s+(ON|DEFAULT)|)"
      R"(fp\s+contract\s*\(\s*(on|fast)|fp\s+reassociate|GCC\s+optimize|optimize\s*\(|ftz=true|prec-(div|sqrt)=false)");
  Violations violations;
  int number = 0;
  for (const std::string& line : lines_of(file.text)) {
    ++number;
    std::smatch match;
    const bool is_comment = line.find_first_not_of(" /#") != std::string::npos &&
                            (line.starts_with("# ") || line.find("//") < line.find('-'));
    if (!is_comment && std::regex_search(line, match, kSwitch)) {
      violations.push_back(at(file, number, "changes the arithmetic: " + match.str()));
    }
  }
  return violations;
}

}  // namespace mererun::testing
