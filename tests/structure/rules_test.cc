// Each rule catches a planted violation and leaves the allowed form next to it alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/structure/rules.h"

namespace mererun::testing {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(IncludeArrows, DownwardIsAllowedUpwardAndSidewaysAreNot) {
  EXPECT_THAT(
      check_include_arrows({"src/model/decoder.cc", "#include \"kernels/ops.h\"\n#include <cmath>\n"}),
      IsEmpty());
  EXPECT_THAT(check_include_arrows({"src/kernels/cpu/linear.cc", "\n#include \"model/config.h\"\n"}),
              ElementsAre("src/kernels/cpu/linear.cc:2: kernels/ may not include model/config.h"));
  EXPECT_THAT(check_include_arrows({"src/tokenizer/a.cc", "#include \"tensor/dtype.h\"\n"}), SizeIs(1));
  EXPECT_THAT(check_include_arrows({"src/checkpoint/a.cc", "#include \"kernels/ops.h\"\n"}), SizeIs(1));
  EXPECT_THAT(check_include_arrows({"src/server/a.cc", "#include \"decode/sampler.h\"\n"}), SizeIs(1));
}

TEST(IncludeArrows, OneFileStartsTheServer) {
  const std::string include = "#include \"server/server.h\"\n";
  EXPECT_THAT(check_include_arrows({"src/cli/api_serve.cc", include}), IsEmpty());
  EXPECT_THAT(check_include_arrows({"src/cli/main.cc", include}), SizeIs(1));
}

TEST(IncludeArrows, AnUnknownFolderIsAViolation) {
  EXPECT_THAT(check_include_arrows({"src/misc/a.cc", ""}), SizeIs(1));
}

TEST(PragmaOnce, CommentsMayStandBeforeIt) {
  EXPECT_THAT(check_pragma_once({"src/base/a.h", "// why\n\n#pragma once\n"}), IsEmpty());
  EXPECT_THAT(check_pragma_once({"src/base/a.h", "#ifndef A\n#pragma once\n"}), SizeIs(1));
  EXPECT_THAT(check_pragma_once({"src/base/a.cc", "int a;\n"}), IsEmpty());
}

TEST(Length, ReasonsCountUpToTheCeiling) {
  const auto lines = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "x\n";
    return text;
  };
  EXPECT_THAT(check_length({"src/base/a.cc", lines(500)}), IsEmpty());
  EXPECT_THAT(check_length({"src/base/a.cc", lines(501)}), SizeIs(1));
  EXPECT_THAT(check_length({"src/base/a.cc", "// Long because of its tables.\n" + lines(799)}), IsEmpty());
  EXPECT_THAT(check_length({"src/base/a.cc", "// Long because of its tables.\n" + lines(800)}), SizeIs(1));
  EXPECT_THAT(check_length({"src/base/a.cc", lines(5) + "// Long because late.\n" + lines(600)}), SizeIs(1));
}

TEST(HeavyHeaders, SourcesMayHeadersMayNot) {
  EXPECT_THAT(check_heavy_headers({"src/model/a.cc", "#include <nlohmann/json.hpp>\n"}), IsEmpty());
  EXPECT_THAT(check_heavy_headers({"src/model/a.h", "#include <nlohmann/json.hpp>\n"}), SizeIs(1));
  EXPECT_THAT(check_heavy_headers({"src/engine/a.h", "#include <nlohmann/json_fwd.hpp>\n"}), IsEmpty());
  EXPECT_THAT(check_heavy_headers({"src/kernels/a.h", "#include <nlohmann/json_fwd.hpp>\n"}), SizeIs(1));
  EXPECT_THAT(check_heavy_headers({"src/kernels/a.h", "#include <cuda_runtime.h>\n"}), SizeIs(1));
  EXPECT_THAT(check_heavy_headers({"src/kernels/cuda/a.cuh", "#include <cuda_runtime.h>\n"}), IsEmpty());
  EXPECT_THAT(check_heavy_headers({"src/cli/a.h", "#include <CLI/CLI.hpp>\n"}), SizeIs(1));
  EXPECT_THAT(check_heavy_headers({"src/engine/a.h", "#include <boost/beast/http.hpp>\n"}), SizeIs(1));
  EXPECT_THAT(check_heavy_headers({"src/server/a.h", "#include <boost/beast/http.hpp>\n"}), IsEmpty());
}

TEST(Environment, CommentsDoNotCount) {
  EXPECT_THAT(check_environment({"src/engine/a.cc", "// getenv is for cli/\nauto s = \"getenv\";\n"}),
              IsEmpty());
  EXPECT_THAT(check_environment({"src/engine/a.cc", "auto s = std::getenv(\"HOME\");\n"}),
              ElementsAre(HasSubstr("src/engine/a.cc:1:")));
  EXPECT_THAT(check_environment({"src/cli/a.cc", "auto s = std::getenv(\"HOME\");\n"}), IsEmpty());
}

TEST(Network, TheServerListensAndNobodyConnects) {
  EXPECT_THAT(check_network({"src/server/a.cc", "#include <boost/asio.hpp>\nvoid disconnect();\n"}),
              IsEmpty());
  EXPECT_THAT(check_network({"src/engine/a.cc", "#include <sys/socket.h>\n"}), SizeIs(1));
  EXPECT_THAT(check_network({"src/server/a.cc", "::connect(fd, address, size);\n"}), SizeIs(1));
  EXPECT_THAT(check_network({"src/server/a.cc", "socket.async_connect(there);\n"}), SizeIs(1));
  EXPECT_THAT(check_network({"src/cli/a.cc", "getaddrinfo(name, port, &hints, &found);\n"}), SizeIs(1));
}

TEST(Stdout, FormattingIntoBuffersIsAllowed) {
  EXPECT_THAT(check_stdout({"src/base/a.cc", "std::snprintf(b, 4, \"x\"); std::fprintf(stderr, \"x\");\n"}),
              IsEmpty());
  EXPECT_THAT(check_stdout({"src/model/a.cc", "std::cout << 1;\n"}), SizeIs(1));
  EXPECT_THAT(check_stdout({"src/model/a.cc", "  printf(\"x\");\n"}), SizeIs(1));
}

TEST(DeviceNames, ComeFromNoPath) {
  EXPECT_THAT(check_device_names({"src/kernels/cuda/a.cu", "namespace {\n}\n"}), SizeIs(1));
  EXPECT_THAT(check_device_names({"src/kernels/cuda/a.cu", "inline namespace a_cu {\n}\n"}), IsEmpty());
  EXPECT_THAT(check_device_names({"src/kernels/cuda/a.cc", "namespace {\n}\n"}), IsEmpty());
}

class MathLibraryBan : public ::testing::TestWithParam<const char*> {};

TEST_P(MathLibraryBan, CatchesCall) {
  EXPECT_THAT(check_math_library({"src/kernels/cpu/a.cc", std::string(GetParam()) + "\n"}), SizeIs(1));
  EXPECT_THAT(check_math_library({"src/decode/a.cc", std::string(GetParam()) + "\n"}), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Forms, MathLibraryBan,
                         ::testing::Values("y = std::exp(x);", "y = expf(x);", "y = ::pow(x, 2);",
                                           "y = a*log(x);", "using std::log1p;", "y = __expf(x);",
                                           "y = rsqrtf(x);", "std::transform(a, b, c, std::tanhf);",
                                           "y = std::sin (x);", "asm(\"ex2.approx.f32 %0, %1;\");"));

TEST(MathLibraryAllowed, ExactOperationsAndOwnFunctions) {
  const std::string text =
      "y = std::fma(a, b, c) + std::sqrt(d) + std::abs(e) + std::floor(f);\n"
      "y = exact_exp(x) + math::exp2(x) + table.sin(3) + log_line(kWarn);  // std::exp(x)\n";
  EXPECT_THAT(check_math_library({"src/kernels/a.h", text}), IsEmpty());
}

TEST(ArithmeticSwitches, FlagsAndPragmas) {
  EXPECT_THAT(check_arithmetic_switches({"cmake/a.cmake", "  -ffp-contract=off;-fno-fast-math\n"}),
              IsEmpty());
  EXPECT_THAT(check_arithmetic_switches({"cmake/a.cmake", "add_compile_options(-ffast-math)\n"}), SizeIs(1));
  EXPECT_THAT(check_arithmetic_switches({"cmake/a.cmake", "set(F --use_fast_math)\n"}), SizeIs(1));
  EXPECT_THAT(check_arithmetic_switches({"src/kernels/a.cc", "#pragma STDC FP_CONTRACT ON\n"}), SizeIs(1));
  EXPECT_THAT(check_arithmetic_switches({"src/kernels/a.cc", "#pragma STDC FP_CONTRACT OFF\n"}), IsEmpty());
  EXPECT_THAT(check_arithmetic_switches({"src/kernels/a.cc", "#pragma clang fp contract(fast)\n"}),
              SizeIs(1));
  EXPECT_THAT(check_arithmetic_switches({"src/kernels/a.cc", "#pragma GCC optimize(\"O3\")\n"}), SizeIs(1));
}

TEST(Blanking, KeepsLinesAndCode) {
  EXPECT_EQ(without_comments_and_strings("a /* b\nc */ d // e\nf"), "a     \n     d     \nf");
  EXPECT_EQ(without_comments_and_strings("f(\"x\\\"y\", 'z', 1'000)"), "f(      ,    , 1'000)");
  EXPECT_EQ(without_comments_and_strings("g(R\"(exp(\n)\") + 1"), "g(       \n  ) + 1");
}

}  // namespace

}  // namespace mererun::testing
