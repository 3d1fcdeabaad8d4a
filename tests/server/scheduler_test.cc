// Several requests on one engine: fair turns, single-user output, and every way a request can end.
#include "server/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/server/live_service.h"

namespace mererun {
namespace {

using ::testing::HasSubstr;
using testing::json_of;
using testing::LiveService;
using Json = nlohmann::ordered_json;

Json completion(int prompt, int tokens, Json more = Json::object()) {
  Json body{
      {"prompt", std::vector<int>(40, prompt)}, {"max_tokens", tokens}, {"temperature", 0}, {"seed", 1}};
  body.update(more);
  return body;
}

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() : folder_(testing::talking_checkpoint(temp_)) {}
  std::unique_ptr<LiveService> live(SchedulerOptions scheduler) {
    return std::make_unique<LiveService>(Engine::load(testing::talking_options(folder_)), scheduler);
  }
  /// A long stream that has begun; the engine's thread waits in the middle of its step until it may go on.
  class HeldStream {
   public:
    explicit HeldStream(LiveService& service)
        : exchange_(service.send_held("/v1/completions", completion(5, 3000, {{"stream", true}}))) {
      EXPECT_TRUE(exchange_->wait_for("data: "));
    }
    ~HeldStream() { leave(); }
    void go_on() { exchange_->go_on(); }
    void leave() {
      exchange_->leave();
      go_on();
    }
    HttpResponse wait() { return exchange_->wait(); }

   private:
    std::shared_ptr<testing::RecordedExchange> exchange_;
  };

  /// What the engine's thread does after it has answered.
  template <typename Condition>
  static bool eventually(Condition condition) {
    for (int i = 0; i < 10000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  }

  testing::TempFolder temp_;
  std::filesystem::path folder_;
};

TEST_F(SchedulerTest, EightAtOnceAnswerLikeEachAlone) {
  const auto service = live({.max_active = 8});
  std::vector<Json> bodies;
  for (int i = 0; i < 8; ++i)
    bodies.push_back(completion(
        100 + i, 30,
        {{"temperature", i % 2}, {"speculation", i % 3 == 0 ? "off" : "on"}, {"stream", i % 4 == 3}}));
  std::vector<std::shared_ptr<testing::RecordedExchange>> together;
  for (const Json& body : bodies) together.push_back(service->send("POST", "/v1/completions", body.dump()));
  std::vector<HttpResponse> answers;
  for (const auto& exchange : together) answers.push_back(exchange->wait());
  const auto alone = live({.max_active = 1});
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    const HttpResponse want = alone->post("/v1/completions", bodies[i]);
    if (bodies[i]["stream"].get<bool>())
      EXPECT_EQ(answers[i].body, want.body) << i;
    else
      EXPECT_EQ(testing::without_extensions(json_of(answers[i])), testing::without_extensions(json_of(want)))
          << i;
  }
}

TEST_F(SchedulerTest, TurnsAreFair) {
  const auto service = live({.max_active = 2});
  HeldStream first(*service);
  const auto second = service->send("POST", "/v1/completions", completion(7, 5).dump());
  int others = 0;
  second->at_end([&] { others = service->scheduler().active(); });
  first.go_on();
  // A request that comes later is not held up until the first one ends.
  EXPECT_EQ(second->wait().status, 200);
  EXPECT_EQ(others, 1);
  first.leave();
  first.wait();
}

TEST_F(SchedulerTest, AFullQueueIsRefusedWithRetryAfter) {
  const auto service = live({.max_active = 1, .max_queued = 1});
  HeldStream active(*service);
  const auto queued = service->send("POST", "/v1/completions", completion(6, 2).dump());
  const HttpResponse refused = service->send("POST", "/v1/completions", completion(7, 2).dump())->wait();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.front().name, "Retry-After");
  EXPECT_EQ(json_of(refused)["error"]["code"], "queue_full");
  active.leave();
  EXPECT_EQ(queued->wait().status, 200);
}

/// A client that leaves in mid-stream frees its slot; what was computed serves the next request of its kind.
TEST_F(SchedulerTest, AClientThatLeavesFreesItsSlotAndItsPrefixStays) {
  const auto service = live({.max_active = 1});
  HeldStream gone(*service);
  gone.leave();
  gone.wait();
  const Json next = json_of(service->post("/v1/completions", completion(5, 4)));
  EXPECT_EQ(next["prefix_cache"]["matchedTokens"], 40);
  EXPECT_TRUE(eventually([&] { return service->scheduler().active() == 0; }));
  EXPECT_THAT(service->get("/metrics").body, HasSubstr("finish=\"cancelled\"} 1\n"));
  const auto fresh = live({.max_active = 1});
  EXPECT_EQ(testing::without_extensions(next),
            testing::without_extensions(json_of(fresh->post("/v1/completions", completion(5, 4)))));
}

TEST_F(SchedulerTest, AClientThatLeavesTheQueueIsForgotten) {
  const auto service = live({.max_active = 1, .max_queued = 4});
  HeldStream active(*service);
  const auto waiting = service->send("POST", "/v1/completions", completion(6, 2).dump());
  waiting->leave();
  int active_then = 0, queued_then = -1;
  waiting->at_end([&] {
    active_then = service->scheduler().active();
    queued_then = service->scheduler().queued();
  });
  active.go_on();
  EXPECT_EQ(waiting->wait().status, 499);
  EXPECT_EQ(active_then, 1);
  EXPECT_EQ(queued_then, 0);
  active.leave();
  active.wait();
}

TEST_F(SchedulerTest, ATimeoutEndsARequest) {
  const auto service = live({.max_active = 1, .timeout_seconds = 0.05});
  HeldStream late(*service);
  const Stopwatch watch;
  EXPECT_TRUE(eventually([&] { return watch.seconds() > 0.05; }));
  late.go_on();
  const HttpResponse ended = late.wait();
  const auto events = testing::events_of(ended.body);
  EXPECT_EQ(events.back()["error"]["code"], "timeout");
  EXPECT_THAT(ended.body, ::testing::Not(HasSubstr("[DONE]")));
}

TEST_F(SchedulerTest, WhatNeedsMoreMemoryThanThereIsIsRefused) {
  const auto service = live({.max_active = 1, .memory_bytes = 4096});
  const HttpResponse refused = service->post("/v1/completions", completion(5, 3000));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(json_of(refused)["error"]["code"], "no_memory");
}

TEST_F(SchedulerTest, ShuttingDownRefusesWhatWaitsAndEndsWhatRuns) {
  const auto service = live({.max_active = 1, .max_queued = 4});
  HeldStream active(*service);
  const auto waiting = service->send("POST", "/v1/completions", completion(6, 2).dump());
  service->scheduler().stop(0);
  active.go_on();
  EXPECT_EQ(waiting->wait().status, 503);
  EXPECT_EQ(testing::events_of(active.wait().body).back()["error"]["code"], "shutting_down");
  EXPECT_EQ(service->post("/v1/completions", completion(6, 2)).status, 503);
}

}  // namespace
}  // namespace mererun
