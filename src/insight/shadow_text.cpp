#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/scalar_type.h"
#include "mezzo/insight_shadow.h"

namespace mezzo::insight {

namespace {

using ShadowJson = nlohmann::ordered_json;

ShadowJson error_json(double error) {
  return std::isfinite(error) ? ShadowJson(error) : ShadowJson();
}

std::string error_text(double error) {
  if (std::isinf(error)) return "inf";
  std::ostringstream text;
  text << std::setprecision(3) << error;
  return text.str();
}

/// "float16", as events say it.
std::string type_name(at::ScalarType type) {
  const DTypeRow* const row = row_of(type);
  return row == nullptr ? c10::toString(type) : std::string(row->name);
}

}  // namespace

std::string ShadowRun::to_text(int most) const {
  const auto shown = [&](std::size_t count) {
    return std::min(count, static_cast<std::size_t>(std::max(most, 0)));
  };
  std::ostringstream out;
  out << level() << " against float, loss scale " << loss_scale() << ": " << operators().size()
      << " operator calls, " << casts().size() << " casts\n";
  if (shown(operators().size()) > 0) {
    out << "        own  accumulated  operator\n" << std::right;
    for (std::size_t i = 0; i < shown(operators().size()); ++i) {
      const OperatorError& each = operators()[i];
      out << std::setw(11) << error_text(each.own) << std::setw(13) << error_text(each.accumulated)
          << "  " << (each.backward ? "backward of " : "") << each.name;
      if (!each.module.empty()) out << " (" << each.module << ')';
      out << ", " << c10::toString(each.dtype) << '\n';
    }
  }
  if (shown(casts().size()) > 0) {
    out << "      error           us  cast\n";
    for (std::size_t i = 0; i < shown(casts().size()); ++i) {
      const CastError& each = casts()[i];
      out << std::setw(11) << error_text(each.error) << std::setw(13)
          << error_text(each.seconds * 1e6) << "  ";
      if (each.parameter.empty()) {
        out << "input " << each.input;
      } else {
        out << each.parameter;
      }
      out << " of " << each.name;
      if (!each.module.empty()) out << " (" << each.module << ')';
      out << ", to " << c10::toString(each.dtype) << '\n';
    }
  }
  return out.str();
}

std::string ShadowRun::to_json() const {
  ShadowJson json{{"level", level()}, {"loss_scale", error_json(loss_scale())}};
  json["operators"] = ShadowJson::array();
  for (const OperatorError& each : operators()) {
    json["operators"].push_back({{"name", each.name},
                                 {"module", each.module},
                                 {"backward", each.backward},
                                 {"own", error_json(each.own)},
                                 {"accumulated", error_json(each.accumulated)},
                                 {"type", c10::toString(each.dtype)}});
  }
  json["casts"] = ShadowJson::array();
  for (const CastError& each : casts()) {
    json["casts"].push_back({{"name", each.name},
                             {"module", each.module},
                             {"parameter", each.parameter},
                             {"input", each.input},
                             {"type", c10::toString(each.dtype)},
                             {"error", error_json(each.error)},
                             {"seconds", each.seconds}});
  }
  return json.dump(2);
}

report::PrecisionCompared ShadowRun::to_event() const {
  report::PrecisionCompared event{.level = level(), .scale = loss_scale(), .text = to_text()};
  for (const OperatorError& each : operators()) {
    event.operators.push_back(
        {each.name, each.module, each.backward, type_name(each.dtype), each.own, each.accumulated});
  }
  for (const CastError& each : casts()) {
    event.casts.push_back({each.name, each.module, each.parameter, each.input,
                           type_name(each.dtype), each.error, each.seconds});
  }
  return event;
}

void ShadowRun::write(report::Sink& log) const {
  log.write(to_event());
}

}  // namespace mezzo::insight
