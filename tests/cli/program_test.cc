#include "cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "cli/chat_stats.h"
#include "cli/exit_codes.h"
#include "cli/interrupts.h"
#include "cli/json_output.h"
#include "cli/prompt.h"
#include "cli/turn_reader.h"

namespace mererun {

namespace {

TEST(ErrorText, HintOnASecondLine) {
  EXPECT_EQ(error_text(Error(ErrorCode::kIo, "a: expected b, got c")),
            "mere.run: error: a: expected b, got c\n");
  EXPECT_EQ(error_text(Error(ErrorCode::kIo, "a", "try b")), "mere.run: error: a\nhint: try b\n");
}

TEST(ExitCodeOf, EveryErrorCode) {
  EXPECT_EQ(exit_code_of(ErrorCode::kInvalidArgument), 64);
  EXPECT_EQ(exit_code_of(ErrorCode::kCorruptData), 65);
  EXPECT_EQ(exit_code_of(ErrorCode::kNotFound), 66);
  EXPECT_EQ(exit_code_of(ErrorCode::kUnsupported), 69);
  EXPECT_EQ(exit_code_of(ErrorCode::kDevice), 70);
  EXPECT_EQ(exit_code_of(ErrorCode::kNumeric), 70);
  EXPECT_EQ(exit_code_of(ErrorCode::kInternal), 70);
  EXPECT_EQ(exit_code_of(ErrorCode::kOutOfMemory), 71);
  EXPECT_EQ(exit_code_of(ErrorCode::kIo), 74);
  EXPECT_EQ(exit_code_of(ErrorCode::kCancelled), 130);
}

TEST(JsonText, IndentedSortedAndAlwaysUtf8) {
  EXPECT_EQ(json_text({{"b", 1}, {"a", {1, 2}}}), "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": 1\n}\n");
  EXPECT_EQ(json_text("\xff"), "\"\xEF\xBF\xBD\"\n");
}

TEST(Interrupts, TheFirstSetsAFlagTheSecondExits) {
  {
    Interrupts interrupts;
    EXPECT_FALSE(interrupts.requested());
    std::raise(SIGINT);
    EXPECT_TRUE(interrupts.requested());
    interrupts.clear();
    EXPECT_FALSE(interrupts.requested());
    std::raise(SIGINT);
    EXPECT_TRUE(interrupts.flag().load());
  }
  EXPECT_EXIT(
      {
        Interrupts interrupts;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(130), "");
}

TEST(Interrupts, TerminationExitsUnlessHeld) {
  EXPECT_EXIT(
      {
        Interrupts interrupts;
        std::raise(SIGTERM);
      },
      ::testing::ExitedWithCode(143), "");
  Interrupts interrupts;
  interrupts.hold_termination();
  std::raise(SIGTERM);
  EXPECT_TRUE(interrupts.termination_requested());
  EXPECT_FALSE(interrupts.requested());
}

TEST(StatsLine, RatesAndAbsentValues) {
  const ChatStats drafted{.route = "mtp-speculative",
                          .reason = "default",
                          .prompt_tokens = 54,
                          .cached_tokens = 4,
                          .generated_tokens = 256,
                          .prefill_seconds = 0.5,
                          .decode_rate = 128,
                          .rounds = 131,
                          .drafted_tokens = 241,
                          .accepted_tokens = 125,
                          .history_tokens = 53};
  EXPECT_EQ(stats_line(drafted),
            "route=mtp-speculative reason=default prompt=54 cached=4 generated=256 prefill_tps=100.0 "
            "decode_tps=128.0 rounds=131 drafted=241 accepted=125 acceptance=0.519 history=53\n");
  ChatStats serial;
  serial.route = "serial";
  serial.reason = "disabled";
  serial.prompt_tokens = 3;
  EXPECT_EQ(stats_line(serial),
            "route=serial reason=disabled prompt=3 cached=0 generated=0 prefill_tps=- decode_tps=- rounds=0 "
            "drafted=0 "
            "accepted=0 acceptance=- history=-\n");
}

class TurnReaderTest : public ::testing::Test {
 protected:
  TurnReaderTest() {
    if (pipe(ends_) != 0) std::abort();
  }
  ~TurnReaderTest() override {
    close(ends_[0]);
    if (ends_[1] >= 0) close(ends_[1]);
  }
  void type(const std::string& text) {
    ASSERT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void end_input() {
    close(ends_[1]);
    ends_[1] = -1;
  }

  int ends_[2] = {-1, -1};
};

TEST_F(TurnReaderTest, LinesAndALastOneWithoutEnd) {
  type("one\r\ntwo\n\nlast");
  end_input();
  TurnReader reader(ends_[0]);
  std::string turn;
  for (const char* expected : {"one", "two", "", "last"}) {
    ASSERT_EQ(reader.read(turn), TurnReader::Result::kTurn);
    EXPECT_EQ(turn, expected);
  }
  EXPECT_EQ(reader.read(turn), TurnReader::Result::kEnd);
  EXPECT_EQ(reader.read(turn), TurnReader::Result::kEnd);
}

TEST_F(TurnReaderTest, ASignalEndsTheWaitAndASecondOneTheConversation) {
  const Interrupts interrupts;
  struct sigaction old = {};
  struct sigaction on_alarm = {};
  on_alarm.sa_handler = [](int) {};
  sigaction(SIGALRM, &on_alarm, &old);
  TurnReader reader(ends_[0]);
  std::string turn;
  const auto read_interrupted = [&] {
    ualarm(20'000, 0);
    return reader.read(turn);
  };
  EXPECT_EQ(read_interrupted(), TurnReader::Result::kInterrupted);
  type("next\n");
  EXPECT_EQ(reader.read(turn), TurnReader::Result::kTurn);
  EXPECT_EQ(turn, "next");
  EXPECT_EQ(read_interrupted(), TurnReader::Result::kInterrupted) << "a turn lies between";
  EXPECT_EQ(read_interrupted(), TurnReader::Result::kGivenUp);
  sigaction(SIGALRM, &old, nullptr);
}

TEST_F(TurnReaderTest, CtrlCEndsTheWaitForAPipedPrompt) {
  const int old = dup(STDIN_FILENO);
  ASSERT_EQ(dup2(ends_[0], STDIN_FILENO), STDIN_FILENO);
  const auto wait = [] {
    const Interrupts interrupts;
    struct sigaction on_alarm = {};
    on_alarm.sa_handler = [](int) { std::raise(SIGINT); };
    sigaction(SIGALRM, &on_alarm, nullptr);
    ualarm(20'000, 0);
    try {
      read_stdin();
    } catch (const Error& error) {
      std::exit(exit_code_of(error.code()));
    }
  };
  EXPECT_EXIT(wait(), ::testing::ExitedWithCode(kExitInterrupted), "");
  dup2(old, STDIN_FILENO);
  close(old);
}

}  // namespace

}  // namespace mererun
