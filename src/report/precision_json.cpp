#include "report/precision_json.h"

#include <limits>

#include "core/raise.h"

namespace mezzo::report {

namespace {

/// An error is never NaN; JSON has no infinity, so that null stands for it.
double error_from(const Fields& fields, const char* name) {
  return fields.optional_number(name).value_or(std::numeric_limits<double>::infinity());
}

/// Calls read(fields) for each object of an array.
template <class Read>
auto each_object(const Fields& fields, const char* name, Read read) {
  const Json& rows = fields.at(name);
  if (!rows.is_array())
    raise<ConfigError>("report", "field '", name, "' must be an array of objects");
  std::vector<decltype(read(fields))> all;
  for (const Json& object : rows) all.push_back(read(Fields(object)));
  return all;
}

AdvisedOperator advised_operator_from(const Fields& f) {
  return {.type = f.text("type"),
          .name = f.text("name"),
          .cast_class = f.text("class"),
          .reason = f.text("reason")};
}

AdvisedCost advised_cost_from(const Fields& f) {
  return {.type = f.text("type"),
          .cast_class = f.text("class"),
          .calls = f.integer("calls"),
          .float_seconds = f.number("float_seconds"),
          .low_seconds = f.number("low_seconds"),
          .float_bytes = f.integer("float_bytes"),
          .low_bytes = f.integer("low_bytes")};
}

ComparedOperator compared_operator_from(const Fields& f) {
  return {.name = f.text("name"),
          .module = f.text("module"),
          .backward = f.truth("backward"),
          .type = f.text("type"),
          .own = error_from(f, "own"),
          .accumulated = error_from(f, "accumulated")};
}

ComparedCast compared_cast_from(const Fields& f) {
  return {.name = f.text("name"),
          .module = f.text("module"),
          .parameter = f.text("parameter"),
          .input = f.integer("input"),
          .type = f.text("type"),
          .error = error_from(f, "error"),
          .seconds = f.number("seconds")};
}

}  // namespace

Json advised_json(const PrecisionAdvised& e) {
  Json operators = Json::array(), costs = Json::array();
  for (const AdvisedOperator& each : e.operators) {
    operators.push_back({{"type", each.type},
                         {"name", each.name},
                         {"class", each.cast_class},
                         {"reason", each.reason}});
  }
  for (const AdvisedCost& each : e.costs) {
    costs.push_back({{"type", each.type},
                     {"class", each.cast_class},
                     {"calls", each.calls},
                     {"float_seconds", each.float_seconds},
                     {"low_seconds", each.low_seconds},
                     {"float_bytes", each.float_bytes},
                     {"low_bytes", each.low_bytes}});
  }
  return {{"event", "precision_advised"},
          {"steps", e.steps},
          {"text", e.text},
          {"policies", e.policies},
          {"operators", std::move(operators)},
          {"costs", std::move(costs)},
          {"odd_sizes", e.odd_sizes}};
}

PrecisionAdvised advised_from(const Fields& f) {
  return {.steps = f.integer("steps"),
          .text = f.text("text"),
          .policies = f.text_map("policies"),
          .operators = each_object(f, "operators", advised_operator_from),
          .costs = each_object(f, "costs", advised_cost_from),
          .odd_sizes = f.texts("odd_sizes")};
}

Json compared_json(const PrecisionCompared& e) {
  Json operators = Json::array(), casts = Json::array();
  for (const ComparedOperator& each : e.operators) {
    operators.push_back({{"name", each.name},
                         {"module", each.module},
                         {"backward", each.backward},
                         {"type", each.type},
                         {"own", each.own},
                         {"accumulated", each.accumulated}});
  }
  for (const ComparedCast& each : e.casts) {
    casts.push_back({{"name", each.name},
                     {"module", each.module},
                     {"parameter", each.parameter},
                     {"input", each.input},
                     {"type", each.type},
                     {"error", each.error},
                     {"seconds", each.seconds}});
  }
  return {{"event", "precision_compared"},
          {"level", e.level},
          {"scale", e.scale},
          {"text", e.text},
          {"operators", std::move(operators)},
          {"casts", std::move(casts)}};
}

PrecisionCompared compared_from(const Fields& f) {
  return {.level = f.text("level"),
          .scale = f.number("scale"),
          .text = f.text("text"),
          .operators = each_object(f, "operators", compared_operator_from),
          .casts = each_object(f, "casts", compared_cast_from)};
}

}  // namespace mezzo::report
