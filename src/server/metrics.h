#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mererun {

/// Counters and histograms of the server in the text form that Prometheus reads (version 0.0.4).
///
/// Thread-safety: thread-safe.
class Metrics {
 public:
  /// `labels` is the text between the braces, such as `route="/v1/models"`; see `label`.
  void add(std::string_view name, std::string_view labels = {}, double amount = 1);
  void observe(std::string_view histogram, double seconds, std::int64_t times = 1);

  /// A counter's value; 0 when nothing was added.
  double value(std::string_view name, std::string_view labels = {}) const;

  /// A gauge of the moment, for `text`.
  struct Gauge {
    std::string name;
    std::string labels;
    double value = 0;
    bool is_counter = false;  // counted elsewhere
  };
  /// Everything, families together, each with its HELP and TYPE lines.
  std::string text(const std::vector<Gauge>& gauges) const;

 private:
  struct Histogram {
    std::vector<std::int64_t> counts;  // by bucket; the last one is +Inf
    std::int64_t total = 0;
    double sum = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, double> counters_;
  std::map<std::string, Histogram, std::less<>> histograms_;
};

/// `name="value"` with the value escaped.
std::string label(std::string_view name, std::string_view value);

}  // namespace mererun
