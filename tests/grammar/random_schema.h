#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

namespace mererun::testing {

/// A schema that something satisfies, with every supported keyword now and then; recursive for some seeds.
nlohmann::ordered_json random_schema(std::uint32_t seed);

}  // namespace mererun::testing
