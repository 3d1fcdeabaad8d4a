#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/request.h"

namespace mererun {

/// The `acceleration` object of every report: route, reason, rounds, drafts, history. Fields without a value
/// are absent.
nlohmann::json acceleration_json(const AccelerationReport& report);
/// The `prefixCache` object: outcome, matchedTokens, class, tier, reason.
nlohmann::json prefix_json(const PrefixReport& report);
/// {prefillSeconds, decodeSeconds, firstTokenSeconds, prefillTokensPerSecond?, decodeTokensPerSecond?}.
nlohmann::json timings_json(const GenerateResult& result);
/// [{name, arguments}] with arguments parsed.
nlohmann::json tool_calls_json(const GenerateResult& result);

}  // namespace mererun
