#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace mererun::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// Arguments as written: f(a, name=b, *c, **d).
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keyword;
  ExpressionPtr star, double_star;  // null when absent
};

enum class Operator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower, kNegate, kPlus };
enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

/// One node of an expression; `kind` says which fields it uses.
struct Expression {
  enum class Kind {
    kConstant,        // constant
    kName,            // symbol, constant = its text
    kAttribute,       // operands[0] . constant
    kItem,            // operands[0] [ operands[1] ]
    kSlice,           // operands[0] [ operands[1] : operands[2] : operands[3] ], each bound may be null
    kList,            // operands
    kTuple,           // operands
    kDict,            // operands, key and value by turns
    kUnary,           // operation, operands[0]
    kBinary,          // operation, operands[0], operands[1]
    kCompare,         // operands[0], then comparisons[i] with operands[i + 1]
    kAnd,             // operands[0], operands[1]
    kOr,              // operands[0], operands[1]
    kNot,             // operands[0]
    kConcat,          // operands
    kConditional,     // operands: condition, value, else (null when absent)
    kCall,            // operands[0] ( arguments )
    kFilter,          // operands[0] (null: the text of a filter block) | constant ( arguments )
    kTest,            // operands[0] is constant ( arguments )
    kNamespaceField,  // only as a target: symbol . constant
  };

  Kind kind;
  int line;
  int depth = 1;  // levels of nodes; the parser bounds it, as evaluation and destruction recurse
  int symbol = -1;
  Operator operation = Operator::kAdd;
  Value constant;
  std::vector<ExpressionPtr> operands;
  std::vector<Comparison> comparisons;
  CallArguments arguments;
};

struct Statement;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

/// A macro, or the body of a call block.
struct Macro {
  std::string name;
  std::vector<int> parameters;  // symbols
  std::vector<std::string> parameter_names;
  std::vector<ExpressionPtr> defaults;  // null: no default
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  Body body;
};

/// One statement; `kind` says which fields it uses.
struct Statement {
  enum class Kind {
    kText,         // text
    kOutput,       // expression
    kSet,          // target = expression
    kSetBlock,     // target = filter chain `expression` (may be null) of body
    kIf,           // branches in order (condition null: else)
    kFor,          // target in expression if condition: body, else: otherwise
    kMacro,        // symbol = macro
    kCall,         // expression (a call) with macro as caller
    kFilterBlock,  // filter chain `expression` of body
    kWith,         // assignments, body
    kScope,        // body with names of its own
    kBreak,
    kContinue,
  };

  Kind kind;
  int line;
  int symbol = -1;
  std::string text;
  ExpressionPtr target;
  ExpressionPtr expression;
  ExpressionPtr condition;
  Body body;
  Body otherwise;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments;
  std::unique_ptr<Macro> macro;
};

/// Symbols that the interpreter itself sets.
enum WellKnownSymbol { kSymbolLoop, kSymbolCaller, kSymbolVarargs, kSymbolKwargs };

/// A parsed template. Immutable, shared by renderings.
struct Program {
  std::string name;
  Body body;
  std::vector<std::string> symbols;  // every variable name, by symbol
  std::unordered_map<std::string, int> symbol_of;
};

}  // namespace mererun::jinja
