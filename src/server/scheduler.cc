#include "server/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/memory_plan.h"
#include "server/reply_parts.h"

namespace mererun {
namespace {

ApiError shutting_down() {
  return ApiError::later(503, "server: expected to go on, got a request to shut down", 10, "shutting_down");
}

/// Cancels; what was computed stays in the prefix cache where it can.
void end_run(Run& run) {
  run.cancel();
  try {
    run.step();
  } catch (const Error& error) {
    log(LogLevel::kWarn, "cancel", "message=\"{}\"", error.what());
  }
}

}  // namespace

Scheduler::Scheduler(Engine& engine, SchedulerOptions options, Metrics& metrics)
    : engine_(engine), options_(options), metrics_(metrics) {}

Scheduler::~Scheduler() = default;

std::optional<std::string> Scheduler::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Scheduler::Place Scheduler::reserve() {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw ApiError::with(500, "engine: expected a working device, got " + *failure_, "device");
    if (is_stopping_) throw shutting_down();
  }
  const int limit = options_.max_active + options_.max_queued;
  if (++in_system_ > limit) {
    --in_system_;
    throw ApiError::later(503,
                          fmt::format("queue: expected fewer than {} requests at once, got {}", limit, limit),
                          1, "queue_full");
  }
  return Place(*this);
}

std::uint64_t Scheduler::memory_for(const Run& run) const {
  const int positions = static_cast<int>(run.prompt().size()) + run.budget();
  const std::uint64_t need = sequence_bytes(engine_.model().host(), positions);
  if (options_.memory_bytes > 0 && need > options_.memory_bytes) {
    throw ApiError::later(
        503,
        fmt::format("memory: expected room for {} tokens ({} bytes), got {} bytes; a smaller "
                    "max_tokens may fit",
                    positions, need, options_.memory_bytes),
        30, "no_memory");
  }
  return need;
}

void Scheduler::submit(Place place, std::unique_ptr<Job> job) {
  place.use();
  {
    const std::lock_guard lock(mutex_);
    arrived_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Scheduler::wake() {
  {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
  }
  changed_.notify_one();
}

void Scheduler::stop(double grace_seconds) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return;
    is_stopping_ = true;
    grace_seconds_ = grace_seconds;
    since_stop_.restart();
  }
  changed_.notify_one();
}

/// False once everything is over.
bool Scheduler::wait_for_work() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return is_woken_ || is_stopping_ || !arrived_.empty() || !waiting_.empty() || !active_.empty();
  });
  is_woken_ = false;
  for (auto& job : arrived_) waiting_.push_back(std::move(job));
  arrived_.clear();
  return !(is_stopping_ && waiting_.empty() && active_.empty());
}

void Scheduler::work() {
  while (wait_for_work()) {
    sweep(waiting_);
    sweep(active_);
    activate();
    if (active_.empty()) continue;
    auto job = std::move(active_.front());
    active_.pop_front();
    step(std::move(job));
  }
}

std::optional<Scheduler::Ending> Scheduler::ending_of(const Job& job) const {
  if (job.cancel->is_set.load()) return Ending::kClientGone;
  if (options_.timeout_seconds > 0 && job.age.seconds() > options_.timeout_seconds) return Ending::kTimeout;
  const std::lock_guard lock(mutex_);
  const bool is_waiting = job.times.queue == 0;
  if (is_stopping_ && (is_waiting || since_stop_.seconds() > grace_seconds_)) return Ending::kShutdown;
  return std::nullopt;
}

/// Ends what nobody waits for any more.
void Scheduler::sweep(Jobs& jobs) {
  for (std::size_t i = 0; i < jobs.size();) {
    const auto ending = ending_of(*jobs[i]);
    if (!ending) {
      ++i;
      continue;
    }
    auto job = std::move(jobs[i]);
    jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(i));
    end_run(*job->run);
    switch (*ending) {
      case Ending::kClientGone:
        fail(std::move(job), ApiError::with(499, "client: expected to stay, got a closed connection"));
        break;
      case Ending::kTimeout:
        fail(std::move(job),
             ApiError::with(504,
                            fmt::format("request: expected an end within {} seconds, got none",
                                        options_.timeout_seconds),
                            "timeout"));
        break;
      case Ending::kShutdown: fail(std::move(job), shutting_down()); break;
    }
  }
}

void Scheduler::activate() {
  while (!waiting_.empty() && static_cast<int>(active_.size()) < options_.max_active) {
    const std::uint64_t need = waiting_.front()->memory;
    const bool fits = options_.memory_bytes == 0 || reserved_bytes_ + need <= options_.memory_bytes;
    if (!fits && !active_.empty()) return;
    auto job = std::move(waiting_.front());
    waiting_.pop_front();
    reserved_bytes_ += need;
    ++num_active_;
    job->times.queue = job->last_step = std::max(job->age.seconds(), 1e-9);
    metrics_.observe("queue_seconds", job->times.queue);
    active_.push_back(std::move(job));
  }
}

void Scheduler::step(std::unique_ptr<Job> job) {
  try {
    job->run->step();
  } catch (const std::exception& failure) {
    const ApiError error = ApiError::of(failure);
    const bool is_device = error.code() == ErrorCode::kDevice;
    if (is_device) on_device_error(error);
    fail(std::move(job), error);
    if (is_device) fail_all(error);
    return;
  }
  measure_step(*job);
  job->reply->on_step(*job->run, job->pieces);
  job->pieces.clear();
  if (job->run->is_finished()) return complete(std::move(job));
  active_.push_back(std::move(job));
}

void Scheduler::measure_step(Job& job) {
  const double now = job.age.seconds();
  const std::int64_t tokens = job.run->statistics() != nullptr ? job.run->statistics()->generated() : 0;
  const std::int64_t made = tokens - job.tokens_before;
  if (made > 0 && job.tokens_before == 0) {
    job.times.first_token = now;
    metrics_.observe("ttft_seconds", now);
  } else if (made > 0) {
    metrics_.observe("inter_token_seconds", (now - job.last_step) / static_cast<double>(made), made);
  }
  job.tokens_before = tokens;
  job.last_step = now;
}

void Scheduler::complete(std::unique_ptr<Job> job) {
  const GenerateResult result = job->run->take_result();
  job->times.total = job->age.seconds();
  count(*job, result, finish_reason(result));
  reserved_bytes_ -= job->memory;
  --num_active_;
  --in_system_;
  job->reply->on_finish(result, job->times);
}

void Scheduler::fail(std::unique_ptr<Job> job, const ApiError& error) {
  job->times.total = job->age.seconds();
  if (job->run->is_finished()) {
    const GenerateResult result = job->run->take_result();
    count(*job, result, error.status() == 499 ? "cancelled" : error.status() == 504 ? "timeout" : "error");
  }
  if (job->times.queue > 0) {  // it was active
    reserved_bytes_ -= job->memory;
    --num_active_;
  }
  --in_system_;
  log(LogLevel::kInfo, "request_failed", "id={} status={} code={}", job->id, error.status(),
      error.api_code());
  job->reply->on_error(error);
}

void Scheduler::fail_all(const ApiError& error) {
  for (Jobs* jobs : {&active_, &waiting_}) {
    while (!jobs->empty()) {
      auto job = std::move(jobs->front());
      jobs->pop_front();
      fail(std::move(job), error);
    }
  }
}

void Scheduler::on_device_error(const Error& error) {
  log(LogLevel::kError, "device", "message=\"{}\"", error.what());
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = error.what();
}

/// Metrics and the log line of a request that is over.
void Scheduler::count(const Job& job, const GenerateResult& result, std::string_view finish) {
  const Statistics& s = result.acceleration.statistics;
  const auto prompt = static_cast<double>(result.prompt_ids.size());
  metrics_.add("requests_total", label("route", job.route) + "," + label("finish", finish));
  metrics_.add("admission_total", label("reason", name_of(result.acceleration.admission.reason)));
  metrics_.add("prompt_tokens_total", {}, prompt);
  metrics_.add("cached_prompt_tokens_total", {}, result.prefix.matched_tokens);
  metrics_.add("generated_tokens_total", {}, static_cast<double>(result.ids.size()));
  metrics_.add("draft_rounds_total", {}, static_cast<double>(s.rounds()));
  metrics_.add("serial_rounds_total", {}, static_cast<double>(s.serial_rounds()));
  metrics_.add("drafted_tokens_total", {}, static_cast<double>(s.drafted()));
  metrics_.add("accepted_draft_tokens_total", {}, static_cast<double>(s.accepted()));
  metrics_.observe("request_seconds", job.times.total);
  log(LogLevel::kInfo, "request",
      "id={} route={} finish={} prompt={} cached={} generated={} decoding={} reason={} rounds={} drafted={} "
      "accepted={} "
      "queue_s={:.3f} ttft_s={:.3f} total_s={:.3f}{}",
      job.id, job.route, finish, result.prompt_ids.size(), result.prefix.matched_tokens, result.ids.size(),
      name_of(result.acceleration.route), name_of(result.acceleration.admission.reason), s.rounds(),
      s.drafted(), s.accepted(), job.times.queue, job.times.first_token, job.times.total, job.content);
}

}  // namespace mererun
