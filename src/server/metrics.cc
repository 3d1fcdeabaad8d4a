#include "server/metrics.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

namespace mererun {
namespace {

constexpr std::array kBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,   0.25, 0.5,
                                 1.0,   2.5,    5.0,   10.0, 30.0,  60.0, 120.0, 300.0};

struct Family {
  std::string_view name;
  std::string_view help;
};
constexpr std::array kFamilies = {
    Family{"build_info", "Always 1; the labels say what runs."},
    Family{"requests_total", "Answered generation requests by route and finish."},
    Family{"http_responses_total", "Refused requests by status."},
    Family{"admission_total", "Generation requests by what admission decided about drafting."},
    Family{"prompt_tokens_total", "Tokens of prompts."},
    Family{"cached_prompt_tokens_total", "Tokens of prompts that the prefix cache held."},
    Family{"generated_tokens_total", "Tokens of replies."},
    Family{"draft_rounds_total", "Rounds that verified drafts."},
    Family{"serial_rounds_total", "Tokens that no drafted round followed."},
    Family{"drafted_tokens_total", "Tokens that were drafted."},
    Family{"accepted_draft_tokens_total", "Drafted tokens that the target chose as well."},
    Family{"prefix_cache_hits_total", "Prompts that began with a stored prefix."},
    Family{"prefix_cache_misses_total", "Prompts that began with none."},
    Family{"prefix_cache_stores_total", "Prefixes stored."},
    Family{"prefix_cache_evictions_total", "Prefixes dropped for others."},
    Family{"prefix_cache_skipped_total", "Prefixes not stored, by reason."},
    Family{"prefix_cache_reused_tokens_total", "Tokens of prompts that stored prefixes spared."},
    Family{"prefix_cache_disk_hits_total", "Prefixes found on disk."},
    Family{"prefix_cache_disk_corrupt_total", "Damaged entries on disk that were dropped."},
    Family{"prefix_cache_bytes", "Stored prefixes, by where they are."},
    Family{"active_requests", "Requests that generate."},
    Family{"queued_requests", "Requests that wait."},
    Family{"connections", "Open connections."},
    Family{"memory_bytes", "Memory by kind."},
    Family{"ttft_seconds", "From admission to the first token."},
    Family{"inter_token_seconds", "Between two tokens of a reply."},
    Family{"request_seconds", "From admission to the end."},
    Family{"queue_seconds", "From admission to the first computation."},
};

std::string_view help_of(std::string_view name) {
  for (const Family& family : kFamilies)
    if (family.name == name) return family.help;
  return "See docs/server.md.";
}

std::string number(double value) {
  return value == static_cast<double>(static_cast<std::int64_t>(value))
             ? fmt::format("{}", static_cast<std::int64_t>(value))
             : fmt::format("{}", value);
}

void begin_family(std::string& out, std::string_view name, std::string_view type) {
  out += fmt::format("# HELP mererun_{} {}\n# TYPE mererun_{} {}\n", name, help_of(name), name, type);
}

void add_sample(std::string& out, std::string_view name, std::string_view labels, double value) {
  out += labels.empty() ? fmt::format("mererun_{} {}\n", name, number(value))
                        : fmt::format("mererun_{}{{{}}} {}\n", name, labels, number(value));
}

}  // namespace

std::string label(std::string_view name, std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return fmt::format("{}=\"{}\"", name, escaped);
}

void Metrics::add(std::string_view name, std::string_view labels, double amount) {
  const std::lock_guard lock(mutex_);
  counters_[{std::string(name), std::string(labels)}] += amount;
}

void Metrics::observe(std::string_view histogram, double seconds, std::int64_t times) {
  if (times <= 0) return;
  const std::lock_guard lock(mutex_);
  Histogram& h = histograms_[std::string(histogram)];
  h.counts.resize(kBuckets.size() + 1);
  std::size_t bucket = 0;
  while (bucket < kBuckets.size() && seconds > kBuckets[bucket]) ++bucket;
  h.counts[bucket] += times;
  h.total += times;
  h.sum += seconds * static_cast<double>(times);
}

double Metrics::value(std::string_view name, std::string_view labels) const {
  const std::lock_guard lock(mutex_);
  const auto at = counters_.find({std::string(name), std::string(labels)});
  return at == counters_.end() ? 0 : at->second;
}

std::string Metrics::text(const std::vector<Gauge>& gauges) const {
  std::string out;
  std::map<std::string, std::vector<const Gauge*>> by_name;
  for (const Gauge& gauge : gauges) by_name[gauge.name].push_back(&gauge);
  for (const auto& [name, samples] : by_name) {
    begin_family(out, name, samples.front()->is_counter ? "counter" : "gauge");
    for (const Gauge* gauge : samples) add_sample(out, name, gauge->labels, gauge->value);
  }
  const std::lock_guard lock(mutex_);
  std::string family;
  for (const auto& [key, value] : counters_) {
    if (key.first != family) begin_family(out, family = key.first, "counter");
    add_sample(out, key.first, key.second, value);
  }
  for (const auto& [name, h] : histograms_) {
    begin_family(out, name, "histogram");
    std::int64_t below = 0;
    for (std::size_t i = 0; i < kBuckets.size(); ++i) {
      below += h.counts[i];
      add_sample(out, name + "_bucket", fmt::format("le=\"{}\"", kBuckets[i]), static_cast<double>(below));
    }
    add_sample(out, name + "_bucket", "le=\"+Inf\"", static_cast<double>(h.total));
    add_sample(out, name + "_sum", {}, h.sum);
    add_sample(out, name + "_count", {}, static_cast<double>(h.total));
  }
  return out;
}

}  // namespace mererun
