// Conversions that are killed, stopped, run into a full disk or into each other, and go on afterwards.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "convert/convert.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun::testing {

namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class InterruptedConvert : public ::testing::Test {
 protected:
  void SetUp() override {
    write_tiny_checkpoint(folder_ / "source", hugging_face(tiny_dense()));
    options_.source = folder_ / "source";
    options_.output = folder_ / "output";
    options_.max_shard_bytes = 60'000;
    options_.threads = 1;
    ConversionOptions whole = options_;
    whole.output = folder_ / "whole";
    whole_ = convert_checkpoint(whole);
  }

  fs::path work() const { return options_.output.string() + ".converting"; }

  void expect_same_as_whole() {
    EXPECT_EQ(folder_files(options_.output), folder_files(folder_ / "whole"));
    EXPECT_FALSE(fs::exists(work()));
  }

  /// Runs `body` in a child process and returns its wait status.
  static int in_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      int status = 99;
      try {
        status = body();
      } catch (...) {
      }
      ::_exit(status);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }

  TempFolder folder_;
  ConversionOptions options_;
  ConversionReport whole_;
};

TEST_F(InterruptedConvert, GoesOnAfterAKillAtAnyPoint) {
  // Killed once at each of several shares of the work, then finished: the same files, and the shards that
  // were complete are kept.
  for (const int percent : {1, 30, 60, 95}) {
    fs::remove_all(options_.output);
    const int status = in_child([&] {
      convert_checkpoint(options_, [&](std::uint64_t done, std::uint64_t total) {
        if (done * 100 >= total * static_cast<std::uint64_t>(percent)) ::raise(SIGKILL);
        return true;
      });
      return 0;
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << percent;
    ASSERT_TRUE(fs::exists(work())) << percent;
    ASSERT_FALSE(fs::exists(options_.output)) << percent;
    const ConversionReport report = convert_checkpoint(options_);
    EXPECT_EQ(report.shards, whole_.shards);
    if (percent >= 60) {
      EXPECT_GT(report.resumed_shards, 0);
    }
    EXPECT_LT(report.resumed_shards, report.shards);
    EXPECT_EQ(report.precisions.at({4, 64}).weights, whole_.precisions.at({4, 64}).weights);
    EXPECT_EQ(report.precisions.at({4, 64}).squared_error, whole_.precisions.at({4, 64}).squared_error);
    expect_same_as_whole();
  }
}

TEST_F(InterruptedConvert, AStoppedRunSaysHowToGoOn) {
  try {
    convert_checkpoint(options_, [](std::uint64_t done, std::uint64_t total) { return done * 2 < total; });
    FAIL() << "was not stopped";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
    EXPECT_THAT(error.hint(), HasSubstr("the same command goes on from "));
  }
  EXPECT_GT(convert_checkpoint(options_).resumed_shards, 0);
  expect_same_as_whole();
}

TEST_F(InterruptedConvert, AShardThatChangedMeanwhileIsMadeAgain) {
  (void)in_child([&] {
    convert_checkpoint(options_, [](std::uint64_t done, std::uint64_t total) {
      if (done * 10 >= total * 9) ::raise(SIGKILL);
      return true;
    });
    return 0;
  });
  fs::path shard;
  for (const auto& entry : fs::directory_iterator(work())) {
    if (entry.path().filename().string().starts_with("model-00001")) shard = entry.path();
  }
  ASSERT_FALSE(shard.empty());
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('\x55');
    file.put('\xaa');
  }
  convert_checkpoint(options_);
  expect_same_as_whole();
}

TEST_F(InterruptedConvert, AFullDiskIsAnErrorAndTheWorkGoesOn) {
  // A limit on file size stands for the full disk: the third shard or so does not fit.
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{30'000, 30'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      convert_checkpoint(options_);
    } catch (const Error& error) {
      const std::string message = error.what();
      const bool is_clear = error.code() == ErrorCode::kIo &&
                            message.find(".safetensors") != std::string::npos &&
                            message.find("expected room for ") != std::string::npos &&
                            message.find("got File too large") != std::string::npos &&
                            error.hint().find("the same command goes on from") != std::string::npos;
      return is_clear ? 7 : 8;
    }
    return 0;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_FALSE(fs::exists(options_.output));
  convert_checkpoint(options_);
  expect_same_as_whole();
}

TEST_F(InterruptedConvert, OtherOptionsDoNotGoOnInTheSameFolder) {
  EXPECT_THROW(convert_checkpoint(options_, [](std::uint64_t, std::uint64_t) { return false; }), Error);
  options_.recipe.bits = 6;
  try {
    convert_checkpoint(options_);
    FAIL() << "went on with other options";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("unfinished conversion of the same source with the same options"));
    EXPECT_THAT(error.hint(), HasSubstr("remove that folder"));
  }
}

TEST_F(InterruptedConvert, TwoRunsDoNotShareAFolder) {
  EXPECT_THROW(convert_checkpoint(options_, [](std::uint64_t, std::uint64_t) { return false; }), Error);
  const int folder = ::open(work().c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(folder, 0);
  ASSERT_EQ(::flock(folder, LOCK_EX | LOCK_NB), 0);
  try {
    convert_checkpoint(options_);
    FAIL() << "worked in a folder that is in use";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("no other conversion works in"));
  }
  ::close(folder);
}

}  // namespace

}  // namespace mererun::testing
