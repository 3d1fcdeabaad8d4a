#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "engine/qualification.h"
#include "engine/run.h"
#include "tests/support/models.h"
#include "tests/support/temp_folder.h"

namespace mererun::testing {

inline const std::atomic<bool> kNotCancelled{false};

inline EngineOptions options_for(const std::string& id, const std::string& root) {
  EngineOptions options;
  options.model.model = id;
  options.model.root = root;
  options.backend = parse_backend(tested_backend());
  options.process.speculation = Speculation::kOn;
  options.prefix_cache_bytes = std::size_t{1} << 30;
  return options;
}

inline std::string bundled_root(const std::string& id) {
  return std::string(MERERUN_SOURCE_DIR "/models/") + id;
}

inline std::unique_ptr<Engine> load_bundled(const std::string& id) {
  return Engine::load(options_for(id, bundled_root(id)));
}

/// An engine with a prefix cache on disk that can be restarted.
class Restartable {
 public:
  Restartable(const std::string& id, const std::string& root) : options_(options_for(id, root)) {
    if (is_disk_store_built()) options_.prefix_cache_dir = temp_ / "cache";
    engine_ = Engine::load(options_);
  }
  QualificationReport qualify(QualificationOptions options, const std::string& other_folder = {}) {
    if (is_disk_store_built()) {
      options.restart = [this, other_folder]() -> Engine& {
        engine_.reset();
        if (!other_folder.empty()) options_.prefix_cache_dir = temp_ / other_folder;
        engine_ = Engine::load(options_);
        return *engine_;
      };
    }
    return mererun::qualify(*engine_, options, kNotCancelled);
  }
  Engine& engine() { return *engine_; }

 private:
  TempFolder temp_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
};

inline QualificationOptions short_options(bool expects_retrieval = true) {
  QualificationOptions options;
  options.expects_retrieval = expects_retrieval;
  options.prompt_tokens = 400;
  options.follow_up_tokens = 440;
  options.reply_tokens = 24;
  options.text_tokens = 32;
  options.oracle_tokens = {32};
  options.widths = {1, 4};
  return options;
}

inline std::string failures(const QualificationReport& report) {
  std::string text;
  for (const QualificationStep& step : report.steps) {
    if (!step.pass.value_or(true)) text += step.name + " ";
  }
  return text;
}

}  // namespace mererun::testing
