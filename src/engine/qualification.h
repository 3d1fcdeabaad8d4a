#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "engine/request.h"

namespace mererun {

using QualificationValue = std::variant<bool, std::int64_t, double, std::string>;

/// One check. A step that could not run has no verdict and says why in its details ("notRun").
struct QualificationStep {
  std::string name;
  std::optional<bool> pass;
  std::map<std::string, QualificationValue> details;  // by camelCase name
};

struct QualificationReport {
  std::vector<QualificationStep> steps;
  /// No step that ran failed.
  bool pass() const;
};

/// The defaults are the procedure; tests on small models shorten it.
struct QualificationOptions {
  int prompt_tokens = 4944;
  int follow_up_tokens = 4973;
  int reply_tokens = 64;                        // most tokens of an answer about the long prompt
  int text_tokens = 256;                        // of code, math and prose; ends of text are ignored
  std::vector<int> oracle_tokens = {128, 256};  // rows verified at each width
  std::vector<int> widths;                      // the certified default widths
  bool expects_retrieval = true;                // false: the answer about the long prompt is only recorded
  /// Ends the engine and loads another from the same checkpoint over the same folder of the prefix cache, as
  /// a new process would; the reference given to `qualify` is dead afterwards. Empty: the restart step can't
  /// run.
  std::function<Engine&()> restart = {};
  std::string no_restart = "the prefix cache of this run is in memory only";  // why, where it is empty
};

/// Proves on one loaded model that drafting, the prefix cache and wide verification change nothing, greedily:
/// a cold long prompt, its replay, a serial reference, a follow-up turn, the prompt again; code, math and
/// prose with and without drafts; every certified width against a serial oracle; after a restart, the prompt
/// once more from disk, with its serial reference, follow-up and replay. The engine must have its draft head
/// and a prefix cache, which is emptied first; the folder of the cache, where it has one, must be empty. What
/// the process says about drafting is overridden and then restored.
///
/// `on_step` (may be empty) sees each step when it is done.
/// Errors: kUnsupported if no prompt of the exact lengths can be formed or there is no chat template;
///         kCancelled once `cancelled` is set; those of the model.
QualificationReport qualify(Engine& engine, const QualificationOptions& options,
                            const std::atomic<bool>& cancelled,
                            const std::function<void(const QualificationStep&)>& on_step = {});

}  // namespace mererun
