#pragma once

#include <functional>
#include <memory>

#include "cli/options.h"
#include "engine/constraints.h"

namespace mererun {

/// What --response-format, --json-schema and --grammar demand of a reply.
///
/// Thread-safety: one thread at a time.
class ReplyForm {
 public:
  /// Reads and checks the files; no model is needed for that. Errors: kNotFound, kIo for files;
  /// kInvalidArgument naming the file and the place in it.
  explicit ReplyForm(const TextChatOptions& options);

  /// The constraint of one reply; null where any text will do. Compiled at the first call, for `engine`.
  std::unique_ptr<TokenConstraint> constraint(const Engine& engine);

 private:
  std::function<std::unique_ptr<TokenConstraint>(const Engine&)> compile_;  // empty: any text
  std::unique_ptr<TokenConstraint> compiled_;
};

}  // namespace mererun
