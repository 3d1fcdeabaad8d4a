#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/service.h"
#include "tests/server/recorded_exchange.h"
#include "tests/support/temp_folder.h"

namespace mererun::testing {

/// A made-up model of four small layers that has the bundled tokenizer's whole vocabulary: it can be talked
/// to, and answers noise, fast.
std::filesystem::path talking_checkpoint(const TempFolder& temp);

/// Options that load a folder with drafting on, a fixed draft cost and a prefix cache of 64 MiB.
EngineOptions talking_options(const std::filesystem::path& folder);

/// Tests that share one engine with a talking model.
class WithTalkingEngine : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    temp_ = std::make_unique<TempFolder>();
    engine_ = Engine::load(talking_options(talking_checkpoint(*temp_)));
  }
  static void TearDownTestSuite() {
    engine_.reset();
    temp_.reset();
  }

  inline static std::unique_ptr<TempFolder> temp_;
  inline static std::unique_ptr<Engine> engine_;
};

/// A service with an engine on a thread of its own and no socket. Answers carry the id "id" and the time 7;
/// the clock of the rate limit stands still.
class LiveService {
 public:
  explicit LiveService(std::unique_ptr<Engine> engine, SchedulerOptions scheduler = {.max_active = 4},
                       ServiceOptions service = {});
  ~LiveService();

  /// Sends a request as screened and handled by the service; the answer may come later.
  std::shared_ptr<RecordedExchange> send(const std::string& method, const std::string& path,
                                         const std::string& body = {}, std::vector<HttpHeader> headers = {});
  /// A POST that asks for a stream: behind its first event the writer, the engine's thread, waits for the
  /// exchange's `go_on`.
  std::shared_ptr<RecordedExchange> send_held(const std::string& path, const nlohmann::ordered_json& body);
  HttpResponse post(const std::string& path, const nlohmann::ordered_json& body);
  HttpResponse get(const std::string& path);

  Engine& engine() { return *engine_; }
  Scheduler& scheduler() { return scheduler_; }
  Metrics& metrics() { return metrics_; }

 private:
  void give(const std::string& method, const std::string& path, const std::string& body,
            std::vector<HttpHeader> headers, const std::shared_ptr<RecordedExchange>& exchange);

  std::unique_ptr<Engine> engine_;
  Metrics metrics_;
  Scheduler scheduler_;
  Service service_;
  std::thread thread_;
};

/// The body of an answer as JSON.
nlohmann::ordered_json json_of(const HttpResponse& response);
/// The JSON of each "data:" line of a stream, "[DONE]" left out.
std::vector<nlohmann::ordered_json> events_of(const std::string& stream);
/// A body without what depends on time and on drafting: acceleration, prefix_cache, timings.
nlohmann::ordered_json without_extensions(nlohmann::ordered_json body);

}  // namespace mererun::testing
