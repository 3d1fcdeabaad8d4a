#include "server/output_format.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/constraints.h"
#include "server/api_error.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

/// Compiles; what the compiler refuses is the field's error.
template <typename Compile>
void constrain(const std::string& field, GenerateRequest& request, Compile compile) {
  try {
    request.constraint = compile();
  } catch (const Error& error) {
    throw ApiError::in_field(field, error.what());
  }
}

void read_response_format(Fields& format, const Engine& engine, GenerateRequest& request) {
  const std::string type = format.required_choice("type", {"text", "json_object", "json_schema"});
  if (type == "json_object")
    constrain(format.path("type"), request, [&] { return json_object_constraint(engine); });
  if (type != "json_schema") return;
  Fields inner(format.required_object("json_schema"), format.path("json_schema"));
  const Json* schema = inner.find("schema");
  if (schema == nullptr) inner.refuse("schema", "a JSON schema");
  constrain(inner.path("schema"), request, [&] { return json_schema_constraint(engine, *schema); });
}

}  // namespace

void read_output_format(Fields& fields, const Engine& engine, GenerateRequest& request) {
  if (const Json* format = fields.object("response_format")) {
    Fields inner(*format, fields.path("response_format"));
    read_response_format(inner, engine, request);
  }
  const auto grammar = fields.text("grammar");
  if (!grammar) return;
  if (request.constraint) fields.refuse("grammar", "no response_format beside it");
  constrain(fields.path("grammar"), request, [&] { return grammar_constraint(engine, *grammar); });
}

}  // namespace mererun
