#include "bench/kernels/timed_ops.h"

#include <set>
#include <utility>

#include "base/clock.h"

namespace mererun::bench {
namespace {

/// Rows times the weight, which is read once.
CallTotals product(const LinearWeight* weight, int rows) {
  return {.bytes = static_cast<double>(weight->owned_bytes()),
          .products = static_cast<double>(rows) * weight->out() * weight->in()};
}

/// Each expert that a row chose is read once.
CallTotals expert_product(const ExpertMlpParams& p) {
  std::set<std::int32_t> chosen;
  for (int t = 0; t < p.ids.rows; ++t) {
    const auto* ids = p.ids.row<const std::int32_t>(t);
    chosen.insert(ids, ids + p.ids.cols);
  }
  CallTotals counted;
  for (const LinearWeight* weight : {p.gate, p.up, p.down}) {
    CallTotals one = product(weight, p.x.rows * p.ids.cols);
    one.bytes *= static_cast<double>(chosen.size()) / weight->experts();
    counted += one;
  }
  if (p.shared.empty()) return counted;
  for (const LinearWeight* weight : {p.shared.gate, p.shared.up, p.shared.down})
    counted += product(weight, p.x.rows);
  return counted;
}

/// The keys and values that the last row sees.
double cache_bytes(const AttendParams& p) {
  const int positions = p.positions.row<const std::int32_t>(0)[p.positions.cols - 1] + 1;
  const double vector_bytes = 2.0 * p.cache.head_dim + sizeof(float);  // codes and their scale
  return 2.0 * positions * p.cache.kv_heads * vector_bytes;
}

double float_bytes(const TensorView& view) {
  return static_cast<double>(view.rows) * view.cols * sizeof(float);
}

}  // namespace

CallTotals& CallTotals::operator+=(const CallTotals& other) {
  calls += other.calls;
  seconds += other.seconds;
  bytes += other.bytes;
  products += other.products;
  return *this;
}

std::map<std::string, CallTotals> TimedOps::take() { return std::exchange(totals_, {}); }

template <typename F>
void TimedOps::timed(const std::string& kind, const CallTotals& counted, F&& call) {
  const Stopwatch watch;
  call();
  const double seconds = watch.seconds();
  CallTotals& totals = totals_[kind];
  totals += counted;
  totals += {.calls = 1, .seconds = seconds};
}

LinearHandle TimedOps::prepare_linear(const LinearSource& source) {
  LinearHandle weight = inner().prepare_linear(source);
  weight_bytes_ += weight->owned_bytes();
  labels_[weight.get()] = source.name.substr(source.name.rfind('.') + 1);
  return weight;
}

void TimedOps::linear(const LinearParams& p) {
  CallTotals counted;
  for (const LinearParams::Target& target : p.targets) counted += product(target.weight, p.x.rows);
  timed("linear " + label(p.targets.front().weight), counted, [&] { inner().linear(p); });
}
void TimedOps::gated_linear(const GatedLinearParams& p) {
  CallTotals counted = product(p.gate, p.x.rows);
  counted += product(p.up, p.x.rows);
  timed("gated_linear " + label(p.gate), counted, [&] { inner().gated_linear(p); });
}
void TimedOps::expert_mlp(const ExpertMlpParams& p) {
  timed("expert_mlp", expert_product(p), [&] { inner().expert_mlp(p); });
}
void TimedOps::attend(const AttendParams& p) {
  timed("attend", {.bytes = cache_bytes(p)}, [&] { inner().attend(p); });
}
void TimedOps::delta_step(const DeltaStepParams& p) {
  timed("delta_step", {.bytes = float_bytes(p.state)}, [&] { inner().delta_step(p); });
}
void TimedOps::delta_replay(const DeltaReplayParams& p) {
  timed("delta_replay", {.bytes = float_bytes(p.state)}, [&] { inner().delta_replay(p); });
}

void TimedOps::upload(void* device, const void* host, std::size_t bytes) {
  timed("upload", {}, [&] { inner().upload(device, host, bytes); });
}
void TimedOps::copy(void* to, const void* from, std::size_t bytes) {
  timed("copy", {}, [&] { inner().copy(to, from, bytes); });
}
void TimedOps::zero(void* device, std::size_t bytes) {
  timed("zero", {}, [&] { inner().zero(device, bytes); });
}
void TimedOps::around(std::string_view op, const std::function<void()>& call) {
  timed(std::string(op), {}, call);
}

}  // namespace mererun::bench
