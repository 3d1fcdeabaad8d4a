# Interface targets every project target links: warnings and the floating-point rules of docs/exactness.md.
find_package(Threads REQUIRED)

add_library(mererun_warnings INTERFACE)
# -Wrestrict is wrong about `"text" + std::string` in gcc 12 (its bug 105651).
target_compile_options(mererun_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wno-sign-conversion>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${MERERUN_WERROR}>>:-Werror>)

# One arithmetic: multiply-adds are fused only where the source says fma, and nothing is reassociated.
add_library(mererun_numerics INTERFACE)
target_compile_options(mererun_numerics INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-fno-fast-math;-fno-math-errno;-fno-trapping-math>)

if(MERERUN_SANITIZE)
  add_compile_options(-fsanitize=${MERERUN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MERERUN_SANITIZE})
  # gcc 12 takes members of std::regex for uninitialised once its code is instrumented.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endif()

# Fuzz targets see which branches of the code under test an input reached.
if(MERERUN_BUILD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# mererun_sources(<variable> <folder> a.cc ...)
# Names the sources of a folder from where they are listed: the CMakeLists.txt beside the folder, or its own.
function(mererun_sources variable folder)
  set(sources ${ARGN})
  if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
    list(TRANSFORM sources PREPEND ${folder}/)
  endif()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# mererun_add_library(<folder> SOURCES a.cc ... DEPENDS folder ... [LINK lib ...] [PRIVATE_LINK lib ...])
# One static library per folder of src/. A folder without sources is an interface library.
function(mererun_add_library folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK;PRIVATE_LINK" ${ARGN})
  set(name mererun_${folder})
  set(deps ${ARG_DEPENDS})
  list(TRANSFORM deps PREPEND mererun_)
  if(ARG_SOURCES)
    mererun_sources(sources ${folder} ${ARG_SOURCES})
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${name} PUBLIC ${deps} ${ARG_LINK} mererun_numerics Threads::Threads
                                  PRIVATE mererun_warnings ${ARG_PRIVATE_LINK})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${name} INTERFACE ${deps} ${ARG_LINK} mererun_numerics Threads::Threads)
  endif()
  add_library(mererun::${folder} ALIAS ${name})
endfunction()

# mererun_compile_as_test(<target>)
# How test code is compiled: at -O1, which takes less time than the release's -O3 and leaves the code under test as it is.
function(mererun_compile_as_test target)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE mererun_warnings mererun_numerics fmt::fmt)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# mererun_add_test_library(<name> SOURCES a.cc ... DEPENDS folder ... [LINK lib ...])
# What several test programs share, as mererun_<name>.
function(mererun_add_test_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  set(deps ${ARG_DEPENDS})
  list(TRANSFORM deps PREPEND mererun_)
  mererun_sources(sources ${name} ${ARG_SOURCES})
  add_library(mererun_${name} STATIC ${sources})
  target_link_libraries(mererun_${name} PUBLIC ${deps} PRIVATE ${ARG_LINK})
  mererun_compile_as_test(mererun_${name})
endfunction()

# mererun_add_test(<folder> SOURCES a_test.cc ... DEPENDS folder ... [LABELS label ...] [LINK lib ...] [TIMEOUT seconds]
#                  [DEMO_TESTS pattern])
# One GoogleTest program per folder of tests/, one CTest entry per program. DEMO_TESTS names the tests that decode long
# with a bundled checkpoint, as a GoogleTest filter; "*" for all of the program's. CTest leaves them out where
# MERERUN_DEMO_TESTS is off (under sanitizers they take hours, and the tiny checkpoints run the same code).
function(mererun_add_test folder)
  cmake_parse_arguments(ARG "" "TIMEOUT;DEMO_TESTS" "SOURCES;DEPENDS;LABELS;LINK" ${ARGN})
  set(name mererun_${folder}_tests)
  set(deps ${ARG_DEPENDS})
  list(TRANSFORM deps PREPEND mererun_)
  mererun_sources(sources ${folder} ${ARG_SOURCES})
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${deps} ${ARG_LINK} GTest::gmock GTest::gtest GTest::gtest_main)
  mererun_compile_as_test(${name})
  target_compile_definitions(${name} PRIVATE MERERUN_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                             MERERUN_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set(filter)
  if(ARG_DEMO_TESTS AND NOT MERERUN_DEMO_TESTS)
    if(ARG_DEMO_TESTS STREQUAL "*")
      return()
    endif()
    set(filter --gtest_filter=-${ARG_DEMO_TESTS})
  endif()
  add_test(NAME ${folder} COMMAND ${name} ${filter})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(MERERUN_SANITIZE)
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  set_tests_properties(${folder} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# mererun_add_fuzz_target(<name> SOURCES fuzz_a.cc ... DEPENDS folder ... [LINK lib ...])
# One libFuzzer program, bin/fuzz_<name>; its seeds are corpus/<name> of tests/fuzz/corpus.tar.xz. scripts/fuzz.sh runs them all.
function(mererun_add_fuzz_target name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  set(deps ${ARG_DEPENDS})
  list(TRANSFORM deps PREPEND mererun_)
  add_executable(fuzz_${name} ${ARG_SOURCES})
  target_link_libraries(fuzz_${name} PRIVATE ${deps} ${ARG_LINK} mererun_warnings mererun_numerics)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endfunction()
