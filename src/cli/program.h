#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace mererun {

struct Environment;

/// "mere.run: error: <message>" and, when there is one, a second line "hint: <hint>".
std::string error_text(const Error& error);

/// `mere.run --version`: version and commit, backends, numeric-contract version, one a line.
std::string version_text();

/// Reports name a variable that a flag of the command line has beaten as one without effect.
void mark_beaten(const std::vector<std::string>& given_flags, Environment& environment);

/// The program from its words (without its own name) to its exit status. Catches every error once: here.
int run_program(const std::vector<std::string>& arguments, Environment environment,
                const std::string& program_path);

}  // namespace mererun
