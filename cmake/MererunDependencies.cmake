# System packages only (Debian 12 names in scripts/setup.sh); nothing is fetched.
# Each dependency is looked up where the folder that needs it is enabled, so that the core targets
# (base .. decode without tokenizer) build on a machine that has none of them.
include(FindPkgConfig)

find_package(nlohmann_json 3.10 QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PCRE2 IMPORTED_TARGET QUIET libpcre2-8)
  pkg_check_modules(UTF8PROC IMPORTED_TARGET QUIET libutf8proc)
  pkg_check_modules(XXHASH IMPORTED_TARGET QUIET libxxhash)
  pkg_check_modules(SQLITE3 IMPORTED_TARGET QUIET sqlite3)
endif()
find_package(fmt QUIET)
find_package(CLI11 QUIET)
find_package(OpenSSL QUIET)
find_package(Boost 1.74 QUIET)  # headers only: Asio and Beast, for the server
if(MERERUN_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
