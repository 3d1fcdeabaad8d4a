#include <arpa/inet.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "cli/environment.h"
#include "cli/option_table.h"
#include "cli/options.h"

namespace mererun {

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4 = {};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6 = {};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string url_of(const std::string& host, std::int64_t port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return "http://" + (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port) + "/";
}

namespace {

void declare_limits(OptionTable& table, ApiServeOptions& options) {
  table.group("Limits");
  table.integer({.names = "--rate-limit-per-minute",
                 .value = "N",
                 .help = "requests a key or address; 0: off",
                 .default_text = "60"},
                {.low = 0}, options.rate_limit_per_minute);
  table.integer({.names = "--max-active-requests",
                 .value = "N",
                 .help = "requests generating at once",
                 .default_text = "1"},
                {1, 1024}, options.max_active_requests);
  table.integer({.names = "--max-queued-requests",
                 .value = "N",
                 .help = "requests that may wait",
                 .default_text = "64"},
                {0, 1'000'000}, options.max_queued_requests);
  table.integer({.names = "--context-size",
                 .value = "N",
                 .help = "prompt and reply of a request",
                 .default_text = "32768"},
                {.low = 2}, options.context_size);
  table.integer(
      {.names = "--max-body-bytes", .value = "N", .help = "largest request body", .default_text = "33554432"},
      {.low = 1, .high = kAnySize}, options.max_body_bytes);
  table.number({.names = "--request-timeout",
                .value = "SECONDS",
                .help = "longest time of a request, waiting included; 0: no limit",
                .default_text = "0"},
               {.low = 0, .high = 1e6}, options.request_timeout);
}

}  // namespace

void declare(OptionTable& table, ApiServeOptions& options) {
  table.group("Address");
  table.integer(
      {.names = "-p,--port", .value = "N", .help = "TCP port; 0: any free one", .default_text = "8080"},
      {0, 65535}, options.port);
  table.text(
      {.names = "--host", .value = "ADDRESS", .help = "address to listen on", .default_text = "127.0.0.1"},
      options.host);
  table.text({.names = "--api-key",
              .value = "KEY",
              .help = "key that clients must send; required unless the host is a loopback address",
              .default_text = "MERERUN_API_KEY"},
             options.api_key);
  table.text({.names = "--cors-origin",
              .value = "ORIGIN",
              .help = "a site whose pages may call this server; *: every site",
              .default_text = "none"},
             options.cors_origin);
  table.toggle(
      {.names = "--log-content", .value = {}, .help = "log the bodies of requests too", .default_text = {}},
      options.log_content);
  table.toggle({.names = "--preflight",
                .value = {},
                .help = "check everything and print the plan; don't listen",
                .default_text = {}},
               options.preflight);
  declare_model(table, options.model, "demo-dense-4bit");
  declare_mtp_root(table, options.model);
  declare_limits(table, options);
  declare_prefix_cache(table, "a quarter of the free device memory, at most 8 GiB",
                       options.prefix_cache_bytes, options.prefix_cache_dir, options.prefix_cache_disk_bytes);
  declare_drafting(table, options.drafting);
  declare_device(table, options.device);
  declare_output(table, options.output);
}

void validate(ApiServeOptions& options) {
  if (!options.api_key && !is_loopback(options.host)) {
    throw Error(ErrorCode::kInvalidArgument,
                "--host: expected a loopback address or an --api-key, got " + options.host + " without a key",
                "set --api-key or MERERUN_API_KEY");
  }
}

void apply_environment(const Environment& environment, ApiServeOptions& options) {
  apply_environment(environment, static_cast<CommonOptions&>(options));
  const Overrides& overrides = environment.overrides;
  if (overrides.api_key) options.api_key = *overrides.api_key;
  if (overrides.prefix_cache_bytes) {
    options.prefix_cache_bytes = static_cast<std::int64_t>(
        std::min<std::uint64_t>(*overrides.prefix_cache_bytes, std::numeric_limits<std::int64_t>::max()));
  }
  if (overrides.prefix_cache == false) options.prefix_cache_bytes = 0;
}

}  // namespace mererun
