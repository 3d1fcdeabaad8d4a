#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/json_call.h"
#include "engine/schema_coercion.h"
#include "engine/tag_lexer.h"

namespace mererun {

/// Reads what follows `<tool_call>`, event by event.
///
/// Two forms: `<function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>`, values typed by the
/// tool's schema, and `{"name": …, "arguments": {…}}</tool_call>`. Any other start, or JSON that is none, is
/// rejected and given back as it was written.
///
/// Values are opaque: a tag closes one only where the format goes on behind it. `</parameter>` needs another
/// tag of the format (or the end) behind it, `</function>` needs `</tool_call>` or another call,
/// `<parameter=` needs a whole key. A `</tool_call>` inside a value is text when the value is closed later,
/// and the end of the call when it never is or when the next `<tool_call>` comes first. Missing and repeated
/// closing tags are thus bridged, and every byte is read once or twice.
///
/// Thread-safety: one thread at a time.
class ToolCallParser {
 public:
  enum class Status {
    kOpen,      // wants more
    kClosed,    // ended by its own closing tag
    kEnded,     // ended without it; the closing tag may come late
    kRejected,  // no call: take_rejected() is text
  };

  explicit ToolCallParser(std::shared_ptr<const ToolSchemas> schemas) : schemas_(std::move(schemas)) {}

  /// `<tool_call>` was read.
  void begin();
  /// Reads from the front of the event. When the status is not kOpen, what is left of the event comes after
  /// the call (and after take_remainder()).
  Status take(OutputEvent& event);
  /// The text is over; what is there becomes the call. Never kOpen.
  Status finish();
  /// A budget that ends the text here does not cut the call: it was closed, or it was never one.
  bool is_whole() const;
  /// Only tags are expected here: the beginning of one is markup even if its rest never comes.
  bool is_between_tags() const {
    return place_ == Place::kBody || place_ == Place::kValueClosing || place_ == Place::kTail;
  }

  /// Calls completed since the last time this was asked.
  std::vector<ParsedCall> take_calls() { return std::exchange(calls_, {}); }
  std::string take_rejected() { return std::exchange(rejected_, {}); }
  /// Text that was read ahead and stands behind the call; it holds no `<tool_call>`.
  std::string take_remainder() { return std::exchange(remainder_, {}); }

 private:
  enum class Place { kHead, kName, kBody, kKey, kValue, kInnerKey, kValueClosing, kTail, kJson };

  Status on_head(OutputEvent& event);
  Status on_name(OutputEvent& event);
  Status on_body(OutputEvent& event);
  Status on_key(OutputEvent& event);
  Status on_value(OutputEvent& event);
  Status on_inner_key(OutputEvent& event);
  Status on_value_closing(OutputEvent& event);
  Status on_tail(OutputEvent& event);
  Status on_json(OutputEvent& event);

  void begin_function();
  void begin_value(std::string_view key);
  void keep_in_value();
  void close_parameter();
  void complete_function();
  void emit() { calls_.push_back(std::exchange(call_, {})); }
  Status end_at_inner_close();
  Status reject();

  std::shared_ptr<const ToolSchemas> schemas_;
  Place place_ = Place::kHead;
  std::string raw_;  // kHead, kName, kJson: the call as written so far
  std::string name_, key_, value_, stray_;
  std::string pending_;  // kInnerKey, kValueClosing: a tag and what follows it, undecided
  OutputTag pending_tag_ = OutputTag::kText;
  std::size_t inner_close_ = std::string::npos;  // the first `</tool_call>` in value_ or, behind it, in raw_
  std::vector<std::pair<std::string, std::string>> arguments_;  // key, JSON text
  std::unordered_map<std::string, std::size_t> argument_index_;
  ParsedCall call_;  // kTail: complete, its closing tag to come

  JsonExtent json_;
  std::size_t json_begin_ = 0;  // in raw_

  std::vector<ParsedCall> calls_;
  std::string rejected_, remainder_;
};

}  // namespace mererun
