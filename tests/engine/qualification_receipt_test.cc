// A passing receipt turns an opt-in model on: for the same files, backend and contract version, and no other.
#include "engine/qualification_receipt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"
#include "engine/run.h"
#include "tests/engine/tiny_engine.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Receipt : public ::testing::Test {
 protected:
  Receipt()
      : folder_(testing::tiny_checkpoint_folder(temp_)), options_(testing::engine_options_for(folder_, 0)) {
    options_.process.speculation = Speculation::kAuto;
  }

  nlohmann::json passing() {
    EngineOptions asked = options_;
    asked.process.speculation = Speculation::kOn;  // so that the head, part of the identity, is loaded
    const auto engine = Engine::load(asked);
    return {{"model", engine->resolved().id},
            {"fingerprint", engine->fingerprint()},
            {"backend", std::string(engine->backend_name())},
            {"contractVersion", kNumericContractVersion},
            {"pass", true}};
  }
  void write(const fs::path& folder, const std::string& text) {
    fs::create_directories(folder);
    std::ofstream(folder / receipt_file_name("local:" + folder_.filename().string())) << text;
  }
  /// Why a request that asks for nothing drafts or does not.
  std::string reason(Engine& engine) {
    GenerateRequest request;
    request.ids = testing::random_ids(32, 256, 3);
    request.max_tokens = 2;
    return std::string(name_of(generate(engine, std::move(request)).acceleration.admission.reason));
  }

  testing::TempFolder temp_;
  fs::path folder_;
  EngineOptions options_;
};

TEST_F(Receipt, TurnsAnOptInModelOn) {
  const auto before = Engine::load(options_);
  EXPECT_EQ(reason(*before), "opt-in");
  EXPECT_EQ(before->drafter(), nullptr);
  EXPECT_EQ(before->qualification(), "none");

  write(folder_, passing().dump());
  const auto after = Engine::load(options_);
  EXPECT_EQ(reason(*after), "default");
  EXPECT_NE(after->drafter(), nullptr);
  EXPECT_THAT(after->qualification(), HasSubstr(folder_.string()));
  EXPECT_THAT(after->resolved().warnings, IsEmpty());
}

TEST_F(Receipt, IsFoundInAStoreToo) {
  options_.surroundings.models = (temp_ / "store").string();
  write(temp_ / "store", passing().dump());
  EXPECT_EQ(reason(*Engine::load(options_)), "default");
}

TEST_F(Receipt, OfOtherFilesOrAnotherBackendIsIgnoredWithAWarning) {
  for (const char* field : {"fingerprint", "backend"}) {
    nlohmann::json other = passing();
    other[field] = "another";
    write(folder_, other.dump());
    const auto engine = Engine::load(options_);
    EXPECT_EQ(reason(*engine), "opt-in") << field;
    EXPECT_EQ(engine->qualification(), "none");
    ASSERT_EQ(engine->resolved().warnings.size(), 1u) << field;
    EXPECT_THAT(engine->resolved().warnings[0], HasSubstr("got " + other["fingerprint"].get<std::string>()));
  }
}

TEST_F(Receipt, ThatFailedOrIsOfAnotherContractCountsForNothing) {
  const nlohmann::json good = passing();
  for (const auto& [field, value] : std::initializer_list<std::pair<const char*, nlohmann::json>>{
           {"pass", false}, {"contractVersion", kNumericContractVersion + 1}, {"model", "local:other"}}) {
    nlohmann::json other = good;
    other[field] = value;
    write(folder_, other.dump());
    const auto engine = Engine::load(options_);
    EXPECT_EQ(reason(*engine), "opt-in") << field;
    EXPECT_EQ(engine->drafter(), nullptr) << field;
  }
}

TEST_F(Receipt, ThatIsNoneNamesTheFileAndTheFieldAndStopsNothing) {
  struct Case {
    std::string text, message;
  };
  nlohmann::json wrong_type = passing();
  wrong_type["contractVersion"] = "1";
  nlohmann::json lacking = passing();
  lacking.erase("pass");
  for (const Case& c : {Case{"", "expected a JSON object, got text that is no JSON"},
                        Case{"[1]", "expected a JSON object, got array"},
                        Case{wrong_type.dump(), "contractVersion: expected an integer, got string"},
                        Case{lacking.dump(), "pass: expected true or false, got nothing"}}) {
    write(folder_, c.text);
    const auto engine = Engine::load(options_);
    EXPECT_EQ(reason(*engine), "opt-in");
    ASSERT_EQ(engine->resolved().warnings.size(), 1u) << c.text;
    EXPECT_THAT(engine->resolved().warnings[0], HasSubstr(c.message));
    EXPECT_THAT(engine->resolved().warnings[0], HasSubstr(".qualification.json"));
  }
}

}  // namespace
}  // namespace mererun
