// Statements, names and macros.
#include "tokenizer/jinja_interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_interpreter_guards.h"
#include "tokenizer/jinja_json.h"

namespace mererun::jinja {

bool LoopState::advance() {
  const Value* next = peek();
  if (next == nullptr) return false;
  if (index_started) {
    previous = current;
    ++index;
  }
  index_started = true;
  current = *next;
  ahead.pop_front();
  return true;
}

const Value* LoopState::peek() {
  if (ahead.empty()) {
    std::optional<Value> next = draw();
    if (!next) return nullptr;
    ahead.push_back(std::move(*next));
  }
  return &ahead.front();
}

std::size_t LoopState::length() {
  while (std::optional<Value> next = draw()) ahead.push_back(std::move(*next));
  return index + 1 + ahead.size();
}

Interpreter::Interpreter(const Program& program, const RenderLimits& limits, const Clock& clock)
    : program_(program), heap_(limits), clock_(clock), context_(program.symbols.size()) {}

std::string Interpreter::render(const nlohmann::ordered_json& variables) {
  std::string output;
  output_ = &output;
  try {
    for (std::size_t symbol = 0; symbol < context_.size(); ++symbol) {
      const auto given = variables.find(program_.symbols[symbol]);
      context_[symbol] =
          given != variables.end() ? from_json(heap_, *given) : make_global(*this, program_.symbols[symbol]);
    }
    const ScopeGuard scope(*this, nullptr);
    run(program_.body);
  } catch (const RenderFailure& failure) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", program_.name, line_, failure.message));
  }
  return output;
}

void Interpreter::write(std::string_view text) {
  output_bytes_ += text.size();
  if (output_bytes_ > heap_.limits().max_output_bytes) {
    fail(fmt::format("expected at most {} bytes of output, got more", heap_.limits().max_output_bytes));
  }
  heap_.charge_steps(text.size() / 256);
  output_->append(text);
}

Interpreter::Flow Interpreter::run(const Body& body) {
  const DepthGuard depth(*this);
  for (const StatementPtr& statement : body) {
    const Flow flow = run(*statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
  heap_.charge_steps(1);
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::Kind::kText: write(statement.text); break;
    case Statement::Kind::kOutput: {
      const Value value = evaluate(*statement.expression);
      write(value.is_string() ? value.as_string() : to_text(heap_, value));
      break;
    }
    case Statement::Kind::kSet: assign(*statement.target, evaluate(*statement.expression)); break;
    case Statement::Kind::kIf: return run_if(statement);
    case Statement::Kind::kFor: return run_for(statement);
    case Statement::Kind::kMacro: set_variable(statement.symbol, make_macro(*statement.macro)); break;
    case Statement::Kind::kCall: run_call_block(statement); break;
    case Statement::Kind::kSetBlock:
    case Statement::Kind::kFilterBlock: return run_captured(statement);
    case Statement::Kind::kWith:
    case Statement::Kind::kScope: return run_scope(statement);
    case Statement::Kind::kBreak: return Flow::kBreak;
    case Statement::Kind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_if(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (condition == nullptr || truthy(evaluate(*condition))) return run(body);
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_scope(const Statement& statement) {
  std::vector<Value> values;  // all evaluated outside the new names
  for (const auto& [target, expression] : statement.assignments) values.push_back(evaluate(*expression));
  const ScopeGuard scope(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i) assign(*statement.assignments[i].first, values[i]);
  return run(statement.body);
}

/// {% set x %}...{% endset %} and {% filter f %}...{% endfilter %}.
Interpreter::Flow Interpreter::run_captured(const Statement& statement) {
  Value text;
  {
    BufferGuard buffer(*this);
    const ScopeGuard scope(*this, scope_);
    const Flow flow = run(statement.body);
    if (flow != Flow::kNormal) return flow;
    text = heap_.string(buffer.take());
  }
  line_ = statement.line;
  if (statement.expression != nullptr) text = evaluate_filter(*statement.expression, &text);
  if (statement.kind == Statement::Kind::kSetBlock) {
    assign(*statement.target, text);
  } else {
    write(to_text(heap_, text));
  }
  return Flow::kNormal;
}

/// The next element whose loop condition holds.
std::optional<Value> Interpreter::draw_element(const Statement& loop, const std::vector<Value>& source,
                                               std::size_t& next) {
  while (next < source.size()) {
    heap_.charge_steps(1);
    const Value& candidate = source[next++];
    if (loop.condition == nullptr) return candidate;
    const ScopeGuard scope(*this, scope_);
    assign(*loop.target, candidate);
    if (truthy(evaluate(*loop.condition))) return candidate;
  }
  return std::nullopt;
}

Interpreter::Flow Interpreter::run_for(const Statement& statement) {
  auto object = std::make_unique<LoopState>();
  std::vector<Value> source_elements = elements(evaluate(*statement.expression));
  const std::size_t source_bytes = source_elements.size() * sizeof(Value);
  heap_.charge_bytes(source_bytes);  // nested loops may each hold a copy of one list
  object->draw = [this, &statement, outer = scope_, source = std::move(source_elements),
                  next = std::size_t{0}]() mutable {
    Scope* const inner = std::exchange(scope_, outer);  // the condition sees the names around the loop
    std::optional<Value> element = draw_element(statement, source, next);
    scope_ = inner;
    return element;
  };
  LoopState& loop = *heap_.own(std::move(object));
  const Value loop_value = Value::loop(&loop);
  bool any_finished = false;  // Jinja2 runs `else` unless an iteration reached its end
  while (loop.advance()) {
    line_ = statement.line;
    const ScopeGuard scope(*this, scope_);
    set_variable(kSymbolLoop, loop_value);
    assign(*statement.target, loop.current);
    const Flow flow = run(statement.body);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) any_finished = true;
  }
  heap_.release_bytes(source_bytes);
  loop.draw = [] { return std::nullopt; };  // a kept `loop` must not look at names that are gone
  if (any_finished || statement.otherwise.empty()) return Flow::kNormal;
  const ScopeGuard scope(*this, scope_);
  return run(statement.otherwise);
}

void Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == Expression::Kind::kName) {
    set_variable(target.symbol, value);
    return;
  }
  if (target.kind == Expression::Kind::kNamespaceField) {
    Value* owner = find_variable(target.symbol);
    if (owner == nullptr || !owner->is(Kind::kNamespace)) {
      fail(fmt::format(
          "expected a namespace to set '{}' in, got {}", target.constant.as_string(),
          owner == nullptr ? "an undefined value" : fmt::format("a value of type {}", type_name(*owner))));
    }
    owner->as_dict().set(heap_, target.constant, value);
    return;
  }
  const std::vector<Value> parts = elements(value);
  if (parts.size() != target.operands.size()) {
    fail(fmt::format("expected {} values to unpack, got {}", target.operands.size(), parts.size()));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) assign(*target.operands[i], parts[i]);
}

Value* Interpreter::find_variable(int symbol) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    heap_.charge_steps(scope->variables.size() / 32);
    for (auto& [known, value] : scope->variables) {
      if (known == symbol) return &value;
    }
  }
  auto& given = context_[static_cast<std::size_t>(symbol)];
  return given ? &*given : nullptr;
}

void Interpreter::set_variable(int symbol, Value value) {
  heap_.charge_steps(scope_->variables.size() / 32);
  for (auto& [known, old] : scope_->variables) {
    if (known == symbol) {
      old = std::move(value);
      return;
    }
  }
  heap_.charge_bytes(sizeof(Value));
  scope_->variables.emplace_back(symbol, std::move(value));
}

Value Interpreter::make_macro(const Macro& macro) {
  for (Scope* scope = scope_; scope != nullptr && !scope->is_captured; scope = scope->parent) {
    scope->is_captured = true;
  }
  return heap_.callable(macro.name,
                        [&macro, closure = scope_](Interpreter& interpreter, const Arguments& arguments) {
                          return interpreter.call_macro(macro, closure, arguments);
                        });
}

void Interpreter::bind_parameters(const Macro& macro, const Arguments& arguments) {
  std::vector<std::optional<Value>> given(macro.parameters.size());
  std::vector<Value> varargs;
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < given.size()) {
      given[i] = arguments.positional[i];
    } else if (macro.uses_varargs) {
      varargs.push_back(arguments.positional[i]);
    } else {
      fail(fmt::format("macro '{}': expected at most {} arguments, got {}", macro.name, given.size(),
                       arguments.positional.size()));
    }
  }
  Value kwargs = macro.uses_kwargs ? heap_.dict() : Value();
  Value caller = Value::undefined("no caller defined");
  for (const auto& [name, value] : arguments.keyword) {
    const auto it = std::find(macro.parameter_names.begin(), macro.parameter_names.end(), name);
    const auto at = static_cast<std::size_t>(it - macro.parameter_names.begin());
    if (at < given.size() && !given[at]) {
      given[at] = value;
    } else if (at < given.size()) {
      fail(fmt::format("macro '{}': expected argument '{}' once, got two", macro.name, name));
    } else if (macro.uses_caller && name == "caller") {
      caller = value;
    } else if (macro.uses_kwargs) {
      kwargs.as_dict().set(heap_, heap_.string(name), value);
    } else {
      fail(fmt::format("macro '{}': expected no argument named '{}'", macro.name, name));
    }
  }
  if (macro.uses_caller) set_variable(kSymbolCaller, caller);
  if (macro.uses_varargs) set_variable(kSymbolVarargs, heap_.tuple(std::move(varargs)));
  if (macro.uses_kwargs) set_variable(kSymbolKwargs, kwargs);
  for (std::size_t i = 0; i < given.size(); ++i) {  // in order: a default may use an earlier parameter
    if (!given[i] && macro.defaults[i] == nullptr) {
      given[i] = Value::undefined(fmt::format("parameter '{}' was not provided", macro.parameter_names[i]));
    }
    set_variable(macro.parameters[i], given[i] ? *given[i] : evaluate(*macro.defaults[i]));
  }
}

Value Interpreter::call_macro(const Macro& macro, Scope* closure, const Arguments& arguments) {
  const DepthGuard depth(*this);
  BufferGuard buffer(*this);
  Scope* const caller_scope = std::exchange(scope_, closure);
  {
    const ScopeGuard scope(*this, closure);
    bind_parameters(macro, arguments);
    run(macro.body);
  }
  scope_ = caller_scope;
  return heap_.string(buffer.take());
}

void Interpreter::run_call_block(const Statement& statement) {
  const Expression& call_expression = *statement.expression;
  Arguments arguments = evaluate_arguments(call_expression.arguments);
  arguments.keyword.emplace_back("caller", make_macro(*statement.macro));
  const Value callee = evaluate(*call_expression.operands[0]);
  line_ = statement.line;
  write(to_text(heap_, call(callee, arguments)));
}

}  // namespace mererun::jinja
