#include "engine/output_parser.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/tag_lexer.h"
#include "engine/text_space.h"
#include "engine/tool_call_parser.h"

namespace mererun {
namespace {

constexpr std::string_view kNewlines = "\r\n";

bool offers_tools(const OutputParserOptions& options) {
  return options.tools && !options.tools->is_null() && !(options.tools->is_array() && options.tools->empty());
}

}  // namespace

class OutputParser::State {
 public:
  explicit State(const OutputParserOptions& options)
      : is_plain_(options.is_plain),
        starts_in_reasoning_(options.starts_in_reasoning),
        lexer_(offers_tools(options) ? TagLexer::Tags::kThinkAndCalls : TagLexer::Tags::kThink) {
    if (offers_tools(options)) call_.emplace(std::make_shared<const ToolSchemas>(options.tools));
  }

  void feed(std::string_view text, std::vector<OutputPiece>& out) {
    begin_output(out);
    if (is_plain_) return append(OutputPiece::Kind::kContent, text);
    OutputEvent event;
    while (lexer_.next(text, event)) read(event);
  }

  void finish(bool drops_open_call, std::vector<OutputPiece>& out) {
    begin_output(out);
    if (place_ == Place::kCall && drops_open_call && !call_->is_whole()) drop_call();
    OutputEvent event = lexer_.flush();
    if (place_ != Place::kCall || !call_->is_between_tags()) read(event);
    if (place_ == Place::kCall) finish_call();
    // Newlines at the very end pad no tag; they are text. Before the first word of reasoning they pad
    // <think>.
    if (place_ == Place::kReasoning)
      release(OutputPiece::Kind::kReasoning);
    else if (place_ != Place::kStart || !starts_in_reasoning_)
      release(OutputPiece::Kind::kContent);
    place_ = Place::kOver;
  }

  int tool_calls() const { return num_calls_; }

 private:
  enum class Place { kStart, kReasoning, kContent, kCall, kOver };

  void begin_output(std::vector<OutputPiece>& out) {
    out_ = &out;
    first_piece_ = out.size();
  }

  void read(OutputEvent& event) {
    while (!event.text.empty()) {
      switch (place_) {
        case Place::kStart: read_start(event); break;
        case Place::kReasoning: read_reasoning(event); break;
        case Place::kContent: read_content(event); break;
        case Place::kCall: read_call(event); break;
        case Place::kOver: return;
      }
    }
  }

  /// Newlines only, so far.
  void read_start(OutputEvent& event) {
    if (event.tag == OutputTag::kText) held_ += event.take_while(kNewlines);
    if (event.text.empty()) return;
    const bool opens_reasoning = event.tag == OutputTag::kThinkOpen;
    if (opens_reasoning) event.take_all();
    if (opens_reasoning || starts_in_reasoning_) {
      held_.clear();
      skipped_ = kNewlines;
      place_ = Place::kReasoning;
    } else {
      place_ = Place::kContent;
    }
  }

  void read_reasoning(OutputEvent& event) {
    if (event.tag == OutputTag::kThinkClose) {
      held_.clear();
      skipped_ = kNewlines;
      place_ = Place::kContent;
      event.take_all();
      return;
    }
    write(OutputPiece::Kind::kReasoning, event.take_all());
  }

  void read_content(OutputEvent& event) {
    if (event.tag == OutputTag::kCallOpen) {
      // Newlines before the tag stay held until it is known to open a call.
      event.take_all();
      expects_call_close_ = false;
      call_->begin();
      place_ = Place::kCall;
      return;
    }
    if (event.tag == OutputTag::kCallClose && (expects_call_close_ || skipped_ == kTextSpace)) {
      // Late, or once more.
      expects_call_close_ = false;
      skipped_ = kTextSpace;
      held_.clear();
      event.take_all();
      return;
    }
    write_content(event.take_all());
  }

  void read_call(OutputEvent& event) {
    const ToolCallParser::Status status = call_->take(event);
    write_calls();
    if (status != ToolCallParser::Status::kOpen) leave_call(status);
  }

  void drop_call() {
    held_.clear();
    place_ = Place::kOver;
  }

  void finish_call() {
    const ToolCallParser::Status status = call_->finish();
    write_calls();
    leave_call(status);
  }

  void leave_call(ToolCallParser::Status status) {
    place_ = Place::kContent;
    if (status == ToolCallParser::Status::kRejected) {
      write_content(call_->take_rejected());
    } else {
      skipped_ = kTextSpace;
      expects_call_close_ = status == ToolCallParser::Status::kEnded;
    }
    const std::string remainder = call_->take_remainder();
    TagLexer lexer(TagLexer::Tags::kThinkAndCalls);
    std::string_view rest = remainder;
    OutputEvent event;
    while (lexer.next(rest, event)) read(event);
    event = lexer.flush();
    read(event);
  }

  void write_calls() {
    for (ParsedCall& call : call_->take_calls()) {
      held_.clear();
      skipped_ = {};
      append(OutputPiece::Kind::kContent, call.stray);
      out_->push_back({.kind = OutputPiece::Kind::kToolCall,
                       .text = {},
                       .name = std::move(call.name),
                       .arguments = std::move(call.arguments),
                       .index = num_calls_++});
    }
  }

  void write_content(std::string_view text) {
    if (call_)
      write(OutputPiece::Kind::kContent, text);
    else
      write_without_calls(text);
  }

  /// With no tag to come, trailing newlines need not wait.
  void write_without_calls(std::string_view text) {
    write(OutputPiece::Kind::kContent, text);
    release(OutputPiece::Kind::kContent);
  }

  /// Writes all but the newlines at the end, which may turn out to pad a tag.
  void write(OutputPiece::Kind kind, std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(skipped_), text.size()));
    if (text.empty()) return;
    skipped_ = {};
    const std::size_t last = text.find_last_not_of(kNewlines);
    const std::size_t size = last == std::string_view::npos ? 0 : last + 1;
    if (size > 0) {
      release(kind);
      append(kind, text.substr(0, size));
    }
    held_ += text.substr(size);
  }

  void release(OutputPiece::Kind kind) { append(kind, std::exchange(held_, {})); }

  /// Extends the last piece of this call's output where the kind allows it.
  void append(OutputPiece::Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (out_->size() > first_piece_ && out_->back().kind == kind)
      out_->back().text += text;
    else
      out_->push_back({.kind = kind, .text = std::string(text), .name = {}, .arguments = {}, .index = 0});
  }

  bool is_plain_;
  bool starts_in_reasoning_;
  TagLexer lexer_;
  std::optional<ToolCallParser> call_;  // none: calls are plain text
  Place place_ = Place::kStart;
  std::string held_;                 // newlines that wait for what follows them
  std::string_view skipped_;         // characters to drop before the next text: padding of the tag before
  bool expects_call_close_ = false;  // the last call ended without its closing tag
  int num_calls_ = 0;
  std::vector<OutputPiece>* out_ = nullptr;
  std::size_t first_piece_ = 0;
};

OutputParser::OutputParser(OutputParserOptions options) : state_(std::make_unique<State>(options)) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

void OutputParser::feed(std::string_view text, std::vector<OutputPiece>& out) { state_->feed(text, out); }

void OutputParser::finish(bool drops_open_call, std::vector<OutputPiece>& out) {
  state_->finish(drops_open_call, out);
}

int OutputParser::tool_calls() const { return state_->tool_calls(); }

}  // namespace mererun
