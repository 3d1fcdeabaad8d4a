#pragma once

#include <string>
#include <vector>

#include "tests/structure/source_tree.h"

namespace mererun::testing {

/// Each rule returns one line per violation, "path:line: what", and nothing for a file that keeps it.
/// CONTRIBUTING.md lists the rules with their reasons.
using Violations = std::vector<std::string>;

/// Quoted includes follow the arrows of the folder list: a folder sees only the folders below it.
Violations check_include_arrows(const SourceFile& file);

/// Headers start with #pragma once.
Violations check_pragma_once(const SourceFile& file);

/// At most 800 lines; above 500 one of the first five lines says "Long because ...".
Violations check_length(const SourceFile& file);

/// CUDA, JSON, HTTP and argument-parser headers stay out of headers that many files include.
Violations check_heavy_headers(const SourceFile& file);

/// The environment is read in cli/ only.
Violations check_environment(const SourceFile& file);

/// Only server/ knows sockets, and nothing connects anywhere or looks up another machine's name.
Violations check_network(const SourceFile& file);

/// stdout carries results, and only cli/ prints those.
Violations check_stdout(const SourceFile& file);

/// No library call whose last bit differs between machines in kernels/ and model/.
Violations check_math_library(const SourceFile& file);

/// No unnamed namespace in a .cu file: nvcc names what is in one by the path of the source, and two builds in
/// different folders would differ. An inline namespace named by the file, `rows_cu`, does the same work.
Violations check_device_names(const SourceFile& file);

/// No switch or pragma that lets a compiler reassociate or fuse arithmetic. Also for CMake files and presets.
Violations check_arithmetic_switches(const SourceFile& file);

}  // namespace mererun::testing
