#include "insight/explanation_json.h"

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/scalar_type.h"

namespace mezzo::insight {

namespace {

using ExplanationJson = nlohmann::ordered_json;

constexpr std::array<std::pair<Cause, std::string_view>, 8> kCauses{{
    {Cause::kOverflow, "overflow"},
    {Cause::kGradientOverflow, "gradient_overflow"},
    {Cause::kLogOfZero, "log_of_zero"},
    {Cause::kDivisionByZero, "division_by_zero"},
    {Cause::kInvalid, "invalid"},
    {Cause::kBadInput, "bad_input"},
    {Cause::kExplodedWeights, "exploded_weights"},
    {Cause::kUnknown, "unknown"},
}};

/// A number, or null for what JSON cannot hold.
ExplanationJson number_json(double value) {
  return std::isfinite(value) ? ExplanationJson(value) : ExplanationJson();
}

double number_from(const ExplanationJson& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

ExplanationJson json_of(const TensorRange& range) {
  return {{"dtype", static_cast<int>(range.dtype)},
          {"type", c10::toString(range.dtype)},
          {"sizes", range.sizes},
          {"min", number_json(range.min)},
          {"max", number_json(range.max)},
          {"smallest", number_json(range.smallest)},
          {"zeros", range.zeros},
          {"nans", range.nans},
          {"infs", range.infs},
          {"largest_at", range.largest_at},
          {"not_finite_at", range.not_finite_at},
          {"parameter", range.parameter}};
}

TensorRange range_from(const ExplanationJson& json) {
  TensorRange range;
  range.dtype = static_cast<at::ScalarType>(json.at("dtype").get<int>());
  json.at("sizes").get_to(range.sizes);
  range.min = number_from(json.at("min"));
  range.max = number_from(json.at("max"));
  range.smallest = number_from(json.at("smallest"));
  json.at("zeros").get_to(range.zeros);
  json.at("nans").get_to(range.nans);
  json.at("infs").get_to(range.infs);
  json.at("largest_at").get_to(range.largest_at);
  json.at("not_finite_at").get_to(range.not_finite_at);
  json.at("parameter").get_to(range.parameter);
  return range;
}

ExplanationJson json_of(const Operator& op) {
  ExplanationJson inputs = ExplanationJson::array();
  for (const TensorRange& input : op.inputs) inputs.push_back(json_of(input));
  return {{"name", op.name},
          {"module", op.module},
          {"backward", op.backward},
          {"inputs", std::move(inputs)},
          {"output", json_of(op.output)}};
}

Operator operator_from(const ExplanationJson& json) {
  Operator op;
  json.at("name").get_to(op.name);
  json.at("module").get_to(op.module);
  json.at("backward").get_to(op.backward);
  for (const ExplanationJson& input : json.at("inputs")) op.inputs.push_back(range_from(input));
  op.output = range_from(json.at("output"));
  return op;
}

ExplanationJson json_of(const Advice& advice) {
  ExplanationJson json{{"text", advice.text}, {"tried", advice.tried}};
  json["loss_scale"] = advice.loss_scale ? number_json(*advice.loss_scale) : ExplanationJson();
  json["keep_float"] = advice.keep_float;
  json["policy"] = nullptr;
  if (advice.policy) {
    std::ostringstream toml;
    advice.policy->to_toml(toml);
    json["policy"] = toml.str();
  }
  return json;
}

Advice advice_from(const ExplanationJson& json) {
  Advice advice;
  json.at("text").get_to(advice.text);
  json.at("tried").get_to(advice.tried);
  if (!json.at("loss_scale").is_null()) advice.loss_scale = json.at("loss_scale").get<double>();
  json.at("keep_float").get_to(advice.keep_float);
  if (!json.at("policy").is_null()) {
    std::istringstream toml(json.at("policy").get<std::string>());
    advice.policy = Policy::from_toml(toml, "advice");
  }
  return advice;
}

}  // namespace

nlohmann::ordered_json operator_json(const Operator& op) {
  return json_of(op);
}

std::string to_string(Cause cause) {
  for (const auto& [value, name] : kCauses) {
    if (value == cause) return std::string(name);
  }
  return "unknown";
}

std::string Explanation::to_json() const {
  ExplanationJson json{{"reproduced", reproduced},
                       {"level", level},
                       {"rank", rank},
                       {"cause", to_string(cause)},
                       {"parameter", parameter},
                       {"fails_in_float", fails_in_float},
                       {"runs_in_float", runs_in_float},
                       {"loss_scale", number_json(loss_scale)},
                       {"evaluations", evaluations}};
  json["first"] = first ? json_of(*first) : ExplanationJson();
  json["advice"] = ExplanationJson::array();
  for (const Advice& each : advice) json["advice"].push_back(json_of(each));
  json["summary"] = summary();
  return json.dump(2);
}

report::SkipExplained Explanation::to_event(std::int64_t step) const {
  report::SkipExplained event{.step = step,
                              .cause = to_string(cause),
                              .parameter = parameter,
                              .rank = rank,
                              .fails_in_float = fails_in_float,
                              .scale = loss_scale,
                              .summary = summary()};
  if (first) {
    event.name = first->name;
    event.module = first->module;
    event.backward = first->backward;
  }
  for (const Advice& each : advice) event.advice.push_back(each.text);
  return event;
}

Explanation explanation_from_json(const std::string& text) {
  const ExplanationJson json = ExplanationJson::parse(text);
  Explanation result;
  json.at("reproduced").get_to(result.reproduced);
  json.at("level").get_to(result.level);
  json.at("rank").get_to(result.rank);
  json.at("parameter").get_to(result.parameter);
  json.at("fails_in_float").get_to(result.fails_in_float);
  json.at("runs_in_float").get_to(result.runs_in_float);
  json.at("evaluations").get_to(result.evaluations);
  result.loss_scale = number_from(json.at("loss_scale"));
  for (const auto& [value, name] : kCauses) {
    if (json.at("cause").get<std::string>() == name) result.cause = value;
  }
  if (!json.at("first").is_null()) result.first = operator_from(json.at("first"));
  for (const ExplanationJson& each : json.at("advice")) result.advice.push_back(advice_from(each));
  return result;
}

}  // namespace mezzo::insight
