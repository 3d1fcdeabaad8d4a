// Tokenizer measurements and ids for comparison with other implementations.
//   encode_bench TOKENIZER_JSON speed FILE...   load time and memory, then MB/s of encode and decode per file
//   encode_bench TOKENIZER_JSON ids FILE...     one JSON list of ids per file, one per line
//   encode_bench TOKENIZER_JSON decode FILE...  one JSON string per file, each a list of decimal ids

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;
using mererun::TokenId;
using mererun::Tokenizer;

constexpr int kRepeats = 7;  // the median is reported

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Peak resident set of this process image; getrusage would include what the parent had before exec.
double peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes / 1024.0;
  }
  return 0;
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) mererun::fail_expected(mererun::ErrorCode::kIo, path, "a readable file", "none");
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename Work>
double median_seconds(Work work) {
  std::vector<double> times;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = Clock::now();
    work();
    times.push_back(seconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  return times[kRepeats / 2];
}

void measure(const Tokenizer& tokenizer, const char* path) {
  const std::string text = read(path);
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::vector<TokenId> ids;
  const auto start = Clock::now();
  ids = tokenizer.encode(text);
  const double first = seconds_since(start);
  const double again = median_seconds([&] { ids = tokenizer.encode(text); });
  std::string decoded;
  const double back = median_seconds([&] { decoded = tokenizer.decode(ids); });
  fmt::print("{}: {:.2f} MB, {} tokens, encode {:.1f} MB/s (first pass {:.1f}), decode {:.1f} MB/s\n", path,
             megabytes, ids.size(), megabytes / again, megabytes / first, megabytes / back);
}

int run(int argc, char** argv) {
  const std::string_view mode = argc > 2 ? argv[2] : "";
  if (mode != "speed" && mode != "ids" && mode != "decode") {
    fmt::print(stderr, "usage: encode_bench TOKENIZER_JSON speed|ids|decode FILE...\n");
    return 64;
  }
  const double before = peak_megabytes();
  const auto start = Clock::now();
  const double cpu_start = cpu_seconds();
  const auto tokenizer = Tokenizer::load(argv[1]);
  if (mode == "speed") {
    fmt::print("load {:.0f} ms ({:.0f} ms of CPU), {} ids, peak resident set {:.0f} MB ({:.0f} before)\n",
               seconds_since(start) * 1e3, (cpu_seconds() - cpu_start) * 1e3, tokenizer->vocabulary_size(),
               peak_megabytes(), before);
  }
  for (int i = 3; i < argc; ++i) {
    if (mode == "speed") {
      measure(*tokenizer, argv[i]);
    } else if (mode == "ids") {
      fmt::print("{}\n", nlohmann::json(tokenizer->encode(read(argv[i]))).dump());
    } else {
      std::istringstream list(read(argv[i]));
      const std::vector<TokenId> ids{std::istream_iterator<TokenId>(list), {}};
      fmt::print("{}\n", nlohmann::json(tokenizer->decode(ids)).dump(-1, ' ', true));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const mererun::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 70;
  }
}
