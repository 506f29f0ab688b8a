#include "report/watched_json.h"

#include "core/raise.h"

namespace mezzo::report {

namespace {

Json magnitudes_json(const Magnitudes& m) {
  return {{"type", m.type},
          {"count", m.count},
          {"norm", m.norm},
          {"largest", m.largest},
          {"smallest", m.smallest},
          {"zeros", m.zeros},
          {"subnormals", m.subnormals},
          {"saturated", m.saturated},
          {"nans", m.nans},
          {"first_exponent", m.first_exponent},
          {"exponents", m.exponents}};
}

Magnitudes magnitudes_from(const Json& object) {
  const Fields f(object);
  return {.type = f.text("type"),
          .count = f.integer("count"),
          .norm = f.number("norm"),
          .largest = f.number("largest"),
          .smallest = f.number("smallest"),
          .zeros = f.number("zeros"),
          .subnormals = f.number("subnormals"),
          .saturated = f.number("saturated"),
          .nans = f.number("nans"),
          .first_exponent = static_cast<int>(f.integer("first_exponent")),
          .exponents = f.integers("exponents")};
}

}  // namespace

Json watched_json(const StepWatched& e) {
  Json rows = Json::array();
  for (const Watched& row : e.rows) {
    rows.push_back({{"module", row.module},
                    {"parameter", row.parameter},
                    {"weights", magnitudes_json(row.weights)},
                    {"gradients", magnitudes_json(row.gradients)},
                    {"updates", magnitudes_json(row.updates)},
                    {"update_ratio", row.update_ratio}});
  }
  return {{"event", "step_watched"},
          {"step", e.step},
          {"scale", e.scale},
          {"skipped", e.skipped},
          {"rows", std::move(rows)}};
}

StepWatched watched_from(const Fields& f) {
  StepWatched watched{
      .step = f.integer("step"), .scale = f.number("scale"), .skipped = f.truth("skipped")};
  const Json& rows = f.at("rows");
  if (!rows.is_array()) raise<ConfigError>("report", "field 'rows' must be an array of objects");
  for (const Json& object : rows) {
    const Fields row(object);
    watched.rows.push_back({.module = row.text("module"),
                            .parameter = row.text("parameter"),
                            .weights = magnitudes_from(row.at("weights")),
                            .gradients = magnitudes_from(row.at("gradients")),
                            .updates = magnitudes_from(row.at("updates")),
                            .update_ratio = row.number("update_ratio")});
  }
  return watched;
}

Json explained_json(const SkipExplained& e) {
  return {{"event", "skip_explained"},
          {"step", e.step},
          {"cause", e.cause},
          {"name", e.name},
          {"module", e.module},
          {"backward", e.backward},
          {"parameter", e.parameter},
          {"rank", e.rank},
          {"fails_in_float", e.fails_in_float},
          {"scale", e.scale},
          {"summary", e.summary},
          {"advice", e.advice}};
}

SkipExplained explained_from(const Fields& f) {
  return {.step = f.integer("step"),
          .cause = f.text("cause"),
          .name = f.text("name"),
          .module = f.text("module"),
          .backward = f.truth("backward"),
          .parameter = f.text("parameter"),
          .rank = static_cast<int>(f.integer("rank")),
          .fails_in_float = f.truth("fails_in_float"),
          .scale = f.number("scale"),
          .summary = f.text("summary"),
          .advice = f.texts("advice")};
}

}  // namespace mezzo::report
