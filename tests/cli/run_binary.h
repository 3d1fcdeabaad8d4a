#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mererun::testing {

struct RunResult {
  int status;  // exit status, or 128 + the signal that ended it
  std::string output;
  std::string errors;
  std::int64_t peak_bytes = 0;  // largest resident set
};

/// Runs the built program with `arguments`, `input` piped to its stdin, and `variables` ("NAME=value") as its
/// whole environment beside PATH.
RunResult run_binary(const std::vector<std::string>& arguments, const std::string& input = {},
                     const std::vector<std::string>& variables = {});

}  // namespace mererun::testing
