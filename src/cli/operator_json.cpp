#include "cli/operator_json.h"

#include <nlohmann/json.hpp>

namespace mezzo::cli {

std::vector<DType> low_types(const std::optional<DType>& only) {
  if (only) return {*only};
  return {kLowTypes.begin(), kLowTypes.end()};
}

std::string listed_in_words(const Operator& op) {
  std::string text;
  for (const System system : kSystems) {
    if (!op.listed_by(system)) continue;
    if (!text.empty()) text += ", ";
    ((text += name_of(system)) += ' ') += name_of(*op.listed_by(system));
  }
  return text;
}

std::string reason_of(const Operator& op, DType low) {
  std::string text(op.why);
  if (const std::string who = opinions(op, low); !who.empty()) (text += "; ") += who;
  return text;
}

nlohmann::ordered_json json_of(std::size_t row, const std::vector<DType>& lows) {
  const Operator& op = operators()[row];
  nlohmann::ordered_json json;
  json["op"] = op.name;
  for (const DType low : lows) {
    json["class"][std::string(name_of(low))] = name_of(op.class_for(low));
  }
  json["why"] = reason_of(op, lows.front());
  json["aliases"] = aliases_of(row);
  json["sources"] = nlohmann::ordered_json::array();
  json["listed"] = nlohmann::ordered_json::object();
  for (const System system : kSystems) {
    if (!op.listed_by(system)) continue;
    json["sources"].push_back(name_of(system));
    json["listed"][std::string(name_of(system))] = name_of(*op.listed_by(system));
  }
  return json;
}

}  // namespace mezzo::cli
