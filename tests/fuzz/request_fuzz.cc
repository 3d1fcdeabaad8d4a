// Fuzz target of an API's request reader, one program per form: MERERUN_READER names its function. Any bytes
// as the body: it is understood, and then makes a prompt or a run, or is refused with a status 4xx.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/run.h"
#include "server/api_error.h"
#include "server/chat_request.h"
#include "server/completion.h"
#include "server/fields.h"
#include "server/messages_request.h"
#include "server/responses_request.h"

namespace {

using namespace mererun;

Engine& engine() {
  static const std::unique_ptr<Engine> kEngine = [] {
    EngineOptions options;
    options.model.root = MERERUN_SOURCE_DIR "/models/demo-dense-4bit";
    options.process.speculation = Speculation::kOff;
    options.threads = 1;
    return Engine::load(options);
  }();
  return *kEngine;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    ApiRequest request = MERERUN_READER(parse_body({reinterpret_cast<const char*>(data), size}), engine());
    const class Run run(engine(), std::move(request.generate));
    if (run.prompt().empty() || run.budget() < 1) std::abort();
  } catch (const std::exception& failure) {
    const int status = ApiError::of(failure).status();
    if (status < 400 || status > 499) std::abort();
  }
  return 0;
}
