#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "tokenizer/jinja_interpreter.h"

namespace mererun::jinja {

/// Counts one level of evaluation while it lives, so that no template overflows the stack.
class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(Interpreter& interpreter) : interpreter_(interpreter) {
    if (interpreter_.depth_ >= interpreter_.heap_.limits().max_depth) {
      fail(fmt::format("expected at most {} nested evaluations: a macro calls itself too often",
                       interpreter_.heap_.limits().max_depth));
    }
    ++interpreter_.depth_;
  }
  ~DepthGuard() { --interpreter_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Interpreter& interpreter_;
};

/// Opens a block of names inside `parent`; closes it in any case.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), outer_(interpreter.scope_) {
    if (interpreter_.free_scopes_.empty()) {
      interpreter_.heap_.charge_bytes(sizeof(Scope) + 8 * sizeof(Value));
      interpreter_.scopes_.push_back(std::make_unique<Scope>());
      interpreter_.free_scopes_.push_back(interpreter_.scopes_.back().get());
    }
    scope_ = interpreter_.free_scopes_.back();
    interpreter_.free_scopes_.pop_back();
    scope_->parent = parent;
    interpreter_.scope_ = scope_;
  }
  ~ScopeGuard() {
    interpreter_.scope_ = outer_;
    if (scope_->is_captured) return;
    interpreter_.heap_.release_bytes(scope_->variables.size() * sizeof(Value));
    scope_->variables.clear();
    interpreter_.free_scopes_.push_back(scope_);
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* const outer_;
  Scope* scope_ = nullptr;
};

/// Collects output in a buffer of its own while it lives.
class Interpreter::BufferGuard {
 public:
  explicit BufferGuard(Interpreter& interpreter)
      : interpreter_(interpreter),
        outer_(std::exchange(interpreter.output_, &buffer_)),
        outer_bytes_(interpreter.output_bytes_) {}
  ~BufferGuard() {
    interpreter_.output_ = outer_;
    interpreter_.output_bytes_ = outer_bytes_;
  }
  BufferGuard(const BufferGuard&) = delete;
  BufferGuard& operator=(const BufferGuard&) = delete;

  std::string take() { return std::move(buffer_); }

 private:
  Interpreter& interpreter_;
  std::string buffer_;
  std::string* const outer_;
  const std::size_t outer_bytes_;
};

}  // namespace mererun::jinja
