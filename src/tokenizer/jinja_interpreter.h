#pragma once

#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_limits.h"
#include "tokenizer/jinja_value.h"

namespace mererun::jinja {

/// Variables set in one block of names; a lookup goes on in the parent.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<int, Value>> variables;  // by symbol; few
  bool is_captured = false;                      // a macro may outlive the block and still look here
};

/// The variable `loop` of one running loop. Elements are drawn one by one, because the loop's own condition
/// may depend on what its body did; looking ahead draws earlier, as in Jinja2.
struct LoopState final : Object {
  /// The next element that passes the condition; nothing at the end.
  std::function<std::optional<Value>()> draw;
  std::deque<Value> ahead;
  std::optional<Value> previous;
  Value current;
  std::size_t index = 0;  // from 0
  bool index_started = false;
  std::optional<Value> last_changed;

  bool advance();
  /// Null at the end.
  const Value* peek();
  std::size_t length();
};

/// Renders one program once. Thread-safety: one thread only.
class Interpreter {
 public:
  using Clock = std::function<std::tm()>;

  Interpreter(const Program& program, const RenderLimits& limits, const Clock& clock);

  /// The rendered text. Errors: kInvalidArgument "<name>:<line>: ..." for a failure and for an exceeded
  /// limit; kInvalidArgument with exactly the template's own message for raise_exception.
  std::string render(const nlohmann::ordered_json& variables);

  // What filters, tests, methods and globals need.
  Heap& heap() { return heap_; }
  const Clock& clock() const { return clock_; }
  Value call(const Value& callee, const Arguments& arguments);
  Value apply_filter(std::string_view name, const Value& input, const Arguments& arguments);
  bool apply_test(std::string_view name, const Value& input, const Arguments& arguments);
  /// All elements: of a list and the like, keys of a dict, characters of a string, none of an undefined
  /// value. Reads an iterator to its end. Fails for anything else.
  std::vector<Value> elements(const Value& value);
  /// base.name and base[key]: Python attributes (methods) and items, in that or the other order.
  Value attribute(const Value& base, const Value& name);
  Value item(const Value& base, const Value& key);
  bool contains(const Value& container, const Value& element);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class DepthGuard;
  class ScopeGuard;
  class BufferGuard;

  // Statements.
  Flow run(const Body& body);
  Flow run(const Statement& statement);
  Flow run_if(const Statement& statement);
  Flow run_for(const Statement& statement);
  Flow run_scope(const Statement& statement);
  Flow run_captured(const Statement& statement);
  void run_call_block(const Statement& statement);
  void write(std::string_view text);
  void assign(const Expression& target, const Value& value);
  std::optional<Value> draw_element(const Statement& loop, const std::vector<Value>& source,
                                    std::size_t& next);
  Value make_macro(const Macro& macro);
  Value call_macro(const Macro& macro, Scope* closure, const Arguments& arguments);
  void bind_parameters(const Macro& macro, const Arguments& arguments);

  // Expressions.
  Value evaluate(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_binary(const Expression& expression);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Value evaluate_conditional(const Expression& expression);
  Value evaluate_call(const Expression& expression);
  Value evaluate_filter(const Expression& expression, const Value* block_text);
  Value evaluate_test(const Expression& expression);
  Arguments evaluate_arguments(const CallArguments& arguments);
  bool compare(Comparison comparison, const Value& a, const Value& b);

  Value* find_variable(int symbol);
  void set_variable(int symbol, Value value);
  Value loop_attribute(const Value& loop, std::string_view name);
  std::optional<Value> method_of(const Value& base, const Value& name);

  const Program& program_;
  Heap heap_;
  const Clock& clock_;
  std::vector<std::optional<Value>> context_;  // variables given by the caller, and globals, by symbol
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  Scope* scope_ = nullptr;
  std::string* output_ = nullptr;
  std::size_t output_bytes_ = 0;  // of all open buffers
  int depth_ = 0;
  int line_ = 1;  // of what is evaluated
};

}  // namespace mererun::jinja
