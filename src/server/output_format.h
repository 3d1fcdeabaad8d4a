#pragma once

#include "engine/engine.h"
#include "server/fields.h"

namespace mererun {

/// response_format (text, json_object, json_schema) and grammar, as the constraint of the request.
/// Errors: ApiError 400 for a form that is none, both at once, or a schema or grammar that
/// docs/constraints.md does not list, naming the place in it.
void read_output_format(Fields& fields, const Engine& engine, GenerateRequest& request);

}  // namespace mererun
