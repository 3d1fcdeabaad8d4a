#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

#include "base/error.h"
#include "tests/checkpoint/test_files.h"

namespace mererun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::safetensors_image;

SafetensorsContent parse(std::string_view image) {
  return parse_safetensors(std::as_bytes(std::span(image.data(), image.size())), "file.safetensors");
}

constexpr std::string_view kSmallHeader =
    R"({"__metadata__":{"format":"mlx"},)"
    R"("model.norm.weight":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
    R"("lm_head.weight":{"dtype":"U32","shape":[1,2],"data_offsets":[4,12]}}   )";

std::string one(std::string_view fields) { return fmt::format(R"({{"model.t":{{{}}}}})", fields); }

std::string small_image() { return safetensors_image(kSmallHeader, std::string("abcdefghijkl")); }

TEST(Safetensors, ReadsEveryFieldOfAHandMadeFile) {
  const std::string image = small_image();
  const SafetensorsContent content = parse(image);
  ASSERT_EQ(content.tensors.size(), 2u);
  EXPECT_EQ(content.header, kSmallHeader);
  EXPECT_EQ(content.data_offset, 8 + kSmallHeader.size());
  EXPECT_THAT(content.notes, IsEmpty());

  const TensorEntry& head = content.tensors[0];
  EXPECT_EQ(head.stored_name, "lm_head.weight");
  EXPECT_EQ(head.dtype, DType::kU32);
  EXPECT_THAT(head.shape, ElementsAre(1, 2));
  EXPECT_EQ(head.bytes, 8u);
  EXPECT_EQ(std::memcmp(head.data, "efghijkl", 8), 0);

  const TensorEntry& norm = content.tensors[1];
  EXPECT_EQ(norm.stored_name, "model.norm.weight");
  EXPECT_EQ(norm.name, "norm.weight");
  EXPECT_EQ(norm.num_elements(), 2u);
  EXPECT_EQ(std::memcmp(norm.data, "abcd", 4), 0);
}

TEST(Safetensors, ReadsEveryDtypeThatItKnows) {
  const std::pair<const char*, DType> kinds[] = {
      {"F32", DType::kF32}, {"BF16", DType::kBF16},     {"F16", DType::kF16}, {"I64", DType::kI64},
      {"I32", DType::kI32}, {"I16", DType::kI16},       {"I8", DType::kI8},   {"U32", DType::kU32},
      {"U8", DType::kU8},   {"F8_E4M3", DType::kF8E4M3}};
  for (const auto& [name, dtype] : kinds) {
    const std::size_t bytes = 3 * size_of(dtype);
    const std::string image = safetensors_image(
        fmt::format(R"({{"a":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})", name, bytes),
        std::string(bytes, 'x'));
    EXPECT_EQ(parse(image).tensors.at(0).dtype, dtype) << name;
  }
}

TEST(Safetensors, AcceptsScalarsEmptyTensorsAndAnEmptyHeader) {
  const std::string image = safetensors_image(
      R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[2,2]}})",
      "abcd");
  const SafetensorsContent content = parse(image);
  EXPECT_EQ(content.tensors.at(0).bytes, 0u);  // "e"; lying inside another tensor, it overlaps nothing
  EXPECT_EQ(content.tensors.at(1).num_elements(), 1u);
  EXPECT_THAT(parse(safetensors_image("{}", "")).tensors, IsEmpty());
}

TEST(Safetensors, NotesBytesThatNoTensorUses) {
  const std::string image = safetensors_image(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
      "abcd");
  EXPECT_THAT(parse(image).notes, ElementsAre("file.safetensors: 2 data bytes belong to no tensor"));
}

// The reference library refuses them too: another file was appended, or the header is of a shorter one.
TEST(Safetensors, RefusesBytesBehindTheLastTensor) {
  for (const std::string& whole :
       {small_image(), safetensors_image("{}", ""),
        safetensors_image(one(R"("dtype":"U8","shape":[0],"data_offsets":[0,0])"), "")}) {
    EXPECT_NO_THROW(parse(whole));
    for (const std::size_t surplus : {1, 8, 4096}) {
      const Error error = error_of([&] { parse(whole + std::string(surplus, '\0')); });
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
      EXPECT_THAT(error.what(), HasSubstr("data bytes, the last tensor's end, got "));
    }
  }
}

TEST(Safetensors, AFileOfAnotherKindIsSaidToBeOne) {
  for (const std::string_view text : {"root:x:0:0:root:/root:/bin/bash\n", "{\"model_type\": \"qwen\"}",
                                      "\x7f"
                                      "ELF\2\1\1\1\1\1"}) {
    EXPECT_THAT(error_of([&] { parse(text); }).what(),
                AllOf(HasSubstr("file.safetensors: expected a safetensors file, with a header of at most"),
                      HasSubstr("(another kind of file?)")));
  }
}

struct Refusal {
  const char* name;
  std::string header;
  std::string data;
  std::string expected;  // part of the message
  ErrorCode code = ErrorCode::kCorruptData;
};

std::vector<Refusal> refusals() {
  return {
      {"NegativeOffset", one(R"("dtype":"F32","shape":[1],"data_offsets":[-1,4])"), "abcd",
       R"(tensor "model.t": expected data_offsets of 0 or more, got -1)"},
      {"ReversedOffsets", one(R"("dtype":"F32","shape":[1],"data_offsets":[8,4])"), "abcdefgh",
       R"(tensor "model.t": expected data_offsets in order, got [8, 4])"},
      {"PastTheEnd", one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), "abcd",
       R"(tensor "model.t": expected data_offsets inside the 4 data bytes, got [0, 8])"},
      {"ShapeLargerThanOffsets", one(R"("dtype":"F32","shape":[1000,1000],"data_offsets":[0,4])"), "abcd",
       R"(tensor "model.t": expected 4000000 bytes for [1000, 1000] F32, got data_offsets [0, 4], 4 bytes)"},
      {"ShapeSmallerThanOffsets", one(R"("dtype":"U8","shape":[3],"data_offsets":[0,4])"), "abcd",
       "expected 3 bytes for [3] U8"},
      {"ProductOverflow", one(R"("dtype":"U8","shape":[8589934592,8589934592],"data_offsets":[0,4])"), "abcd",
       "expected a shape whose bytes fit 64 bits, got [8589934592, 8589934592] U8"},
      {"OverflowByElementSize", one(R"("dtype":"I64","shape":[4611686018427387904],"data_offsets":[0,0])"),
       "", "expected a shape whose bytes fit 64 bits"},
      {"DimensionAbove63Bits", one(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,4])"),
       "abcd", "expected a dimension below 2^63, got 18446744073709551615"},
      {"NegativeDimension", one(R"("dtype":"U8","shape":[-4],"data_offsets":[0,4])"), "abcd",
       "expected shape of 0 or more, got -4"},
      {"FractionalDimension", one(R"("dtype":"U8","shape":[4.0],"data_offsets":[0,4])"), "abcd",
       "expected whole numbers in shape, got the number 4.0"},
      {"OffsetAbove64Bits", one(R"("dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551616])"),
       "abcd", "expected whole numbers in data_offsets"},
      {"TooManyDimensions", one(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"), "a",
       "expected at most 8 dimensions"},
      {"OneOffset", one(R"("dtype":"U8","shape":[1],"data_offsets":[0])"), "a",
       "expected two data_offsets, got 1"},
      {"ThreeOffsets", one(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])"), "a",
       "expected two data_offsets, got more"},
      {"UnknownDtype", one(R"("dtype":"F64","shape":[1],"data_offsets":[0,8])"), "abcdefgh", R"(got "F64")",
       ErrorCode::kUnsupported},
      {"LowerCaseDtype", one(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"), "abcd", R"(got "f32")",
       ErrorCode::kUnsupported},
      {"DtypeIsNoText", one(R"("dtype":4,"shape":[1],"data_offsets":[0,4])"), "abcd",
       "expected a dtype name, got the number 4"},
      {"MissingDtype", one(R"("shape":[1],"data_offsets":[0,4])"), "abcd", "expected a dtype, got none"},
      {"MissingShape", one(R"("dtype":"F32","data_offsets":[0,4])"), "abcd", "expected a shape, got none"},
      {"MissingOffsets", one(R"("dtype":"F32","shape":[1])"), "abcd", "expected two data_offsets, got 0"},
      {"UnknownField", one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)"), "abcd",
       R"(expected only dtype, shape and data_offsets, got "x")"},
      {"FieldTwice", one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"shape":[1])"), "abcd",
       "expected one shape, got two"},
      {"NestedShape", one(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), "abcd", "got a list"},
      {"ShapeIsObject", one(R"("dtype":"F32","shape":{},"data_offsets":[0,4])"), "abcd",
       "expected a list as shape, got an object"},
      {"TensorTwice",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       "ab", R"(expected every tensor once, got "a" twice)"},
      {"Overlap",
       R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
       "abcdefg", R"(tensor "b": expected data_offsets from 4 on, got 3, inside tensor "a")"},
      {"SameRange",
       R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       "abcd", "inside tensor"},
      {"TensorIsList", R"({"a":[1]})", "", R"(tensor "a": expected an object, got a list)"},
      {"TensorIsNull", R"({"a":null})", "", R"(tensor "a": expected an object, got null)"},
      {"TopLevelList", "[]", "", "expected an object as header, got a list"},
      {"TopLevelNumber", "17", "", "expected an object as header, got the number 17"},
      {"TwoTopLevels", "{}{}", "", "expected a JSON header, got at byte"},
      {"TrailingText", "{} x", "", "expected a JSON header, got at byte"},
      {"EmptyHeader", "", "", "expected a JSON header, got at byte"},
      {"CutJson", R"({"a":{"dtype")", "", "expected a JSON header, got at byte"},
      {"BadUtf8", "{\"\xff\":{}}", "", "expected a JSON header, got at byte"},
      {"NulBytes", std::string(4, '\0'), "", "expected a header of JSON text, got a NUL at byte 0"},
      {"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", "", "expected one __metadata__, got two"},
      {"MetadataKeyTwice", R"({"__metadata__":{"a":"b","a":"c"}})", "",
       R"(expected distinct keys in __metadata__, got "a" twice)"},
      {"MetadataNumber", R"({"__metadata__":{"a":1}})", "",
       "__metadata__: expected texts only, got the number 1"},
      {"MetadataNested", R"({"__metadata__":{"a":{}}})", "",
       "__metadata__: expected texts only, got an object"},
      {"MetadataList", R"({"__metadata__":[]})", "", "expected an object, got a list"},
  };
}

class SafetensorsRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(SafetensorsRefusal, NamesFileTensorExpectedAndGot) {
  const std::string image = safetensors_image(GetParam().header, GetParam().data);
  const Error error = error_of([&] { parse(image); });
  EXPECT_EQ(error.code(), GetParam().code);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("file.safetensors"), HasSubstr(GetParam().expected)));
}

INSTANTIATE_TEST_SUITE_P(All, SafetensorsRefusal, ::testing::ValuesIn(refusals()),
                         [](const auto& refusal) { return std::string(refusal.param.name); });

TEST(Safetensors, RefusesHeaderLengthsThatTheFileCannotHold) {
  // The last is a small length in the wrong byte order.
  for (const std::uint64_t length :
       {std::uint64_t{3}, kMaxSafetensorsHeaderBytes, kMaxSafetensorsHeaderBytes + 1, std::uint64_t{1} << 32,
        std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 7, std::uint64_t{2} << 56}) {
    const std::string image = safetensors_image(length, "{}", "");
    const Error error = error_of([&] { parse(image); });
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("file.safetensors: expected a "), HasSubstr("header of ")))
        << length;
  }
}

TEST(Safetensors, RefusesWhatFollowsANul) {
  const std::string header("{}\0[", 4);
  EXPECT_THAT(error_of([&] { parse(safetensors_image(header, "")); }).what(),
              HasSubstr("expected a header of JSON text, got a NUL at byte 2 of it"));
}

TEST(Safetensors, RefusesDeeplyNestedHeaders) {
  const std::string deep(1 << 20, '[');
  EXPECT_THAT(error_of([&] { parse(safetensors_image(deep, "")); }).what(), HasSubstr("got a list"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += R"({"a":)";
  EXPECT_EQ(error_of([&] { parse(safetensors_image(objects, "")); }).code(), ErrorCode::kCorruptData);
}

TEST(Safetensors, MessagesEscapeAndCutTheNamesTheyQuote) {
  const std::string image = safetensors_image(R"({"\u001b[31m)" + std::string(5000, 'x') + R"(":1})", "");
  const std::string what = error_of([&] { parse(image); }).what();
  EXPECT_THAT(what, HasSubstr("\\x1b"));
  EXPECT_EQ(what.find('\x1b'), what.npos);
  EXPECT_LT(what.size(), 400u);
}

TEST(Safetensors, EveryTruncationIsAnErrorNotACrash) {
  const std::string image = small_image();
  for (std::size_t length = 0; length < image.size(); ++length) {
    // A copy of exact size, so that the address sanitizer sees any read past it.
    const std::string cut = image.substr(0, length);
    const std::vector<char> exact(cut.begin(), cut.end());
    const Error error = error_of([&] { parse({exact.data(), exact.size()}); });
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << length;
  }
}

// Every entry of a successful parse must describe bytes of the image.
void expect_consistent(const SafetensorsContent& content, std::span<const char> image) {
  for (const TensorEntry& tensor : content.tensors) {
    const auto* first = reinterpret_cast<const char*>(tensor.data);
    ASSERT_GE(first, image.data() + content.data_offset);
    ASSERT_LE(first + tensor.bytes, image.data() + image.size());
    std::uint64_t bytes = size_of(tensor.dtype);
    for (const std::int64_t dim : tensor.shape) bytes *= static_cast<std::uint64_t>(dim);
    ASSERT_EQ(bytes, tensor.bytes);
  }
}

TEST(Safetensors, FlippedBytesGiveAnErrorOrAConsistentResult) {
  const std::string original = small_image();
  std::mt19937 random(20);
  int parsed = 0;
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<char> image(original.begin(), original.end());
    for (auto flips = 1 + random() % 3; flips > 0; --flips) {
      image[random() % image.size()] = static_cast<char>(random());
    }
    try {
      expect_consistent(parse({image.data(), image.size()}), image);
      ++parsed;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(parsed, 100);  // flips in names, spaces and data do no harm
  EXPECT_GT(refused, 10000);
}

TEST(SafetensorsFile, FindsByStoredNameAndPointsIntoTheMapping) {
  const testing::TempFolder folder;
  SafetensorsFile opened(folder.write("a.safetensors", small_image()));
  const SafetensorsFile file = std::move(opened);  // entries survive the move
  ASSERT_NE(file.find("model.norm.weight"), nullptr);
  EXPECT_EQ(file.find("norm.weight"), nullptr);
  EXPECT_EQ(file.find("model.norm.weight")->file, &file.file());
  EXPECT_EQ(describe(*file.find("model.norm.weight")), "[2] BF16 in a.safetensors");
  EXPECT_EQ(file.data().size(), 12u);
  EXPECT_EQ(std::memcmp(file.data().data(), "abcdefghijkl", 12), 0);
}

TEST(SafetensorsFile, EmptyFileIsRefusedByName) {
  const testing::TempFolder folder;
  const auto path = folder.write("empty.safetensors", "");
  EXPECT_THAT(error_of([&] { SafetensorsFile file(path); }).what(),
              HasSubstr("empty.safetensors: expected a safetensors file of 8 bytes or more, got 0 bytes"));
}

}  // namespace
}  // namespace mererun
