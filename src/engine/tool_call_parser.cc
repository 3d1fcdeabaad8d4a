#include "engine/tool_call_parser.h"

#include <algorithm>
#include <optional>

#include "engine/json_text.h"
#include "engine/text_space.h"

namespace mererun {
namespace {

constexpr std::string_view kNameEnd = ">\n<";
constexpr std::size_t kNone = std::string::npos;

bool follows_function(OutputTag tag) {
  return tag == OutputTag::kCallClose || tag == OutputTag::kCallOpen || tag == OutputTag::kFunctionOpen;
}

bool is_call_tag(OutputTag tag) {
  return tag != OutputTag::kText && tag != OutputTag::kThinkOpen && tag != OutputTag::kThinkClose;
}

}  // namespace

void ToolCallParser::begin() {
  place_ = Place::kHead;
  raw_ = text_of(OutputTag::kCallOpen);
  inner_close_ = kNone;
}

ToolCallParser::Status ToolCallParser::take(OutputEvent& event) {
  Status status = Status::kOpen;
  while (status == Status::kOpen && !event.text.empty()) {
    switch (place_) {
      case Place::kHead: status = on_head(event); break;
      case Place::kName: status = on_name(event); break;
      case Place::kBody: status = on_body(event); break;
      case Place::kKey: status = on_key(event); break;
      case Place::kValue: status = on_value(event); break;
      case Place::kInnerKey: status = on_inner_key(event); break;
      case Place::kValueClosing: status = on_value_closing(event); break;
      case Place::kTail: status = on_tail(event); break;
      case Place::kJson: status = on_json(event); break;
    }
  }
  return status;
}

ToolCallParser::Status ToolCallParser::finish() {
  switch (place_) {
    case Place::kHead:
    case Place::kName:
    case Place::kJson: return reject();
    case Place::kInnerKey: keep_in_value(); [[fallthrough]];
    case Place::kValue:
      if (inner_close_ != kNone) return end_at_inner_close();
      [[fallthrough]];
    case Place::kValueClosing: close_parameter(); [[fallthrough]];
    case Place::kBody:
    case Place::kKey: complete_function(); [[fallthrough]];
    case Place::kTail: break;
  }
  emit();
  return Status::kEnded;
}

bool ToolCallParser::is_whole() const {
  if (inner_close_ == kNone) return false;
  if (place_ == Place::kJson) return true;
  const std::size_t close_size = text_of(OutputTag::kCallClose).size();
  return place_ == Place::kValue && is_space(std::string_view(value_).substr(inner_close_ + close_size));
}

ToolCallParser::Status ToolCallParser::on_head(OutputEvent& event) {
  if (event.tag == OutputTag::kText) {
    raw_ += event.take_while(kTextSpace);
    if (event.text.empty()) return Status::kOpen;
    if (event.text[0] != '{') return reject();
    place_ = Place::kJson;
    json_begin_ = raw_.size();
    json_.begin();
    return Status::kOpen;
  }
  if (event.tag != OutputTag::kFunctionOpen) return reject();
  raw_ += event.take_all();
  begin_function();
  return Status::kOpen;
}

ToolCallParser::Status ToolCallParser::on_name(OutputEvent& event) {
  if (event.tag != OutputTag::kText) return reject();
  const std::string_view part = event.take_until(kNameEnd);
  name_ += part;
  raw_ += part;
  if (event.text.empty()) return Status::kOpen;
  if (event.text[0] == '<' || trim(name_).empty()) return reject();
  event.take(1);
  name_ = std::string(trim(name_));
  raw_.clear();
  place_ = Place::kBody;
  return Status::kOpen;
}

ToolCallParser::Status ToolCallParser::on_body(OutputEvent& event) {
  switch (event.tag) {
    case OutputTag::kParameterOpen:
      event.take_all();
      key_.clear();
      place_ = Place::kKey;
      return Status::kOpen;
    case OutputTag::kParameterClose: event.take_all(); return Status::kOpen;
    case OutputTag::kFunctionOpen:
    case OutputTag::kFunctionClose:
    case OutputTag::kCallOpen:
    case OutputTag::kCallClose:
      complete_function();
      if (event.tag == OutputTag::kFunctionClose) event.take_all();
      return Status::kOpen;
    default: stray_ += event.take_all(); return Status::kOpen;
  }
}

ToolCallParser::Status ToolCallParser::on_key(OutputEvent& event) {
  if (event.tag == OutputTag::kText) {
    key_ += event.take_until(kNameEnd);
    if (event.text.empty()) return Status::kOpen;
    // A line end stands in for a forgotten '>'.
    if (event.text[0] != '<') {
      event.take(event.text[0] == '>' ? 1 : 0);
      begin_value(std::string(trim(key_)));
      return Status::kOpen;
    }
  }
  stray_.append(text_of(OutputTag::kParameterOpen)).append(key_);
  place_ = Place::kBody;
  return Status::kOpen;
}

ToolCallParser::Status ToolCallParser::on_value(OutputEvent& event) {
  switch (event.tag) {
    case OutputTag::kParameterOpen:
    case OutputTag::kParameterClose:
    case OutputTag::kFunctionClose:
      pending_tag_ = event.tag;
      pending_ = event.take_all();
      place_ = pending_tag_ == OutputTag::kParameterOpen ? Place::kInnerKey : Place::kValueClosing;
      return Status::kOpen;
    case OutputTag::kCallOpen:
      if (inner_close_ != kNone) return end_at_inner_close();
      break;
    case OutputTag::kCallClose: inner_close_ = std::min(inner_close_, value_.size()); break;
    default: break;
  }
  value_ += event.take_all();
  return Status::kOpen;
}

ToolCallParser::Status ToolCallParser::on_inner_key(OutputEvent& event) {
  if (event.tag == OutputTag::kText) {
    pending_ += event.take_until(kNameEnd);
    if (event.text.empty()) return Status::kOpen;
    const std::string key(trim(std::string_view(pending_).substr(text_of(OutputTag::kParameterOpen).size())));
    if (event.text[0] == '>' && !key.empty()) {
      event.take(1);
      close_parameter();
      begin_value(key);
      return Status::kOpen;
    }
  }
  keep_in_value();
  return Status::kOpen;
}

ToolCallParser::Status ToolCallParser::on_value_closing(OutputEvent& event) {
  if (event.tag == OutputTag::kText) {
    pending_ += event.take_while(kTextSpace);
    if (!event.text.empty()) keep_in_value();
    return Status::kOpen;
  }
  const bool closes_function = pending_tag_ == OutputTag::kFunctionClose;
  if (!(closes_function ? follows_function(event.tag) : is_call_tag(event.tag))) {
    keep_in_value();
    return Status::kOpen;
  }
  close_parameter();
  if (closes_function) complete_function();
  return Status::kOpen;
}

ToolCallParser::Status ToolCallParser::on_tail(OutputEvent& event) {
  switch (event.tag) {
    case OutputTag::kFunctionClose:
    case OutputTag::kParameterClose: event.take_all(); return Status::kOpen;
    case OutputTag::kFunctionOpen:
      emit();
      raw_ = event.take_all();
      begin_function();
      return Status::kOpen;
    case OutputTag::kCallClose:
      emit();
      event.take_all();
      return Status::kClosed;
    case OutputTag::kText:
      event.take_while(kTextSpace);
      if (event.text.empty()) return Status::kOpen;
      break;
    default: break;
  }
  emit();
  return Status::kEnded;
}

ToolCallParser::Status ToolCallParser::on_json(OutputEvent& event) {
  if (event.tag == OutputTag::kCallOpen && inner_close_ != kNone) return reject();
  if (event.tag == OutputTag::kCallClose && json_.in_string())
    inner_close_ = std::min(inner_close_, raw_.size() + event.text.size());
  raw_ += event.take(json_.scan(event.text));
  if (json_.status() == JsonExtent::Status::kOpen) return Status::kOpen;
  if (json_.status() == JsonExtent::Status::kBroken) return reject();
  std::optional<ParsedCall> call = parse_json_call(std::string_view(raw_).substr(json_begin_));
  if (!call) return reject();
  call_ = *std::move(call);
  raw_.clear();
  inner_close_ = kNone;
  place_ = Place::kTail;
  return Status::kOpen;
}

void ToolCallParser::begin_function() {
  name_.clear();
  stray_.clear();
  arguments_.clear();
  argument_index_.clear();
  place_ = Place::kName;
}

void ToolCallParser::begin_value(std::string_view key) {
  key_ = std::string(key);
  value_.clear();
  inner_close_ = kNone;
  place_ = Place::kValue;
}

void ToolCallParser::keep_in_value() {
  value_ += pending_;
  place_ = Place::kValue;
}

void ToolCallParser::close_parameter() {
  std::string_view value = value_;
  if (!value.empty() && value.front() == '\n') value.remove_prefix(1);
  if (!value.empty() && value.back() == '\n') value.remove_suffix(1);
  std::string json = schemas_->argument_json(name_, key_, value);
  // A key written twice keeps its place and takes the later value.
  const auto [at, is_new] = argument_index_.try_emplace(key_, arguments_.size());
  if (is_new) arguments_.emplace_back(key_, std::string());
  arguments_[at->second].second = std::move(json);
  value_.clear();
  inner_close_ = kNone;
  place_ = Place::kBody;
}

void ToolCallParser::complete_function() {
  const std::string_view stray = trim(stray_);
  call_ = {.stray = std::string(stray), .name = std::move(name_), .arguments = "{"};
  for (const auto& [key, json] : arguments_) {
    if (call_.arguments.size() > 1) call_.arguments += ',';
    call_.arguments.append(quote_json(key)).append(":").append(json);
  }
  call_.arguments += '}';
  if (arguments_.empty() && !stray.empty() && stray[0] == '{') {
    // The JSON form of the arguments inside the other form of the call.
    if (std::optional<std::string> json = compact_json(stray)) {
      call_.arguments = *std::move(json);
      call_.stray.clear();
    }
  }
  place_ = Place::kTail;
}

ToolCallParser::Status ToolCallParser::end_at_inner_close() {
  remainder_ = value_.substr(inner_close_ + text_of(OutputTag::kCallClose).size());
  value_.resize(inner_close_);
  close_parameter();
  complete_function();
  emit();
  return Status::kClosed;
}

ToolCallParser::Status ToolCallParser::reject() {
  if (place_ == Place::kJson && inner_close_ != kNone) {
    remainder_ = raw_.substr(inner_close_);
    raw_.resize(inner_close_);
  }
  rejected_ = std::exchange(raw_, {});
  return Status::kRejected;
}

}  // namespace mererun
