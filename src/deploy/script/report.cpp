#include <nlohmann/json.hpp>
#include <sstream>

#include "mezzo/deploy_script.h"

namespace mezzo::deploy {
namespace {

std::string names_of_modules(const std::vector<std::string>& modules) {
  constexpr std::size_t kMost = 3;
  std::string text;
  for (std::size_t i = 0; i < modules.size() && i < kMost; ++i)
    (text += i == 0 ? "" : ", ") += modules[i];
  if (modules.size() > kMost) text += ", and " + std::to_string(modules.size() - kMost) + " more";
  return text;
}

}  // namespace

std::string ScriptReport::to_text() const {
  std::ostringstream text;
  text << "calls: " << low_calls << ' ' << target_dtype << ", " << float_calls << " float32, "
       << promote_calls << " in the widest type of their operands, " << neutral_calls
       << " in the type that arrives\n";
  text << "casts: " << casts << ", of which " << weight_casts << " of weights and " << guarded_casts
       << " that look at the type at run time\n";
  text << "weights: " << low_weights << " of " << weights << " stored in " << target_dtype << ", "
       << bytes_before << " bytes became " << bytes_after << '\n';
  if (folded_batch_norms != 0)
    text << "batch normalizations: " << folded_batch_norms << " folded\n";
  if (error) text << "largest error: " << *error << " of the output's range\n";
  for (const ScriptOperator& one : operators) {
    if (one.cast_class == "neutral") continue;
    text << "  " << one.cast_class << "  " << one.calls << " x " << one.op;
    if (const std::string names = names_of_modules(one.modules); !names.empty())
      text << " (" << names << ')';
    text << ": " << one.why << '\n';
  }
  for (const std::string& warning : warnings) text << "warning: " << warning << '\n';
  return text.str();
}

std::string ScriptReport::to_json() const {
  nlohmann::ordered_json json;
  json["target_dtype"] = target_dtype;
  json["calls"] = {{"low", low_calls},
                   {"float", float_calls},
                   {"promote", promote_calls},
                   {"neutral", neutral_calls}};
  json["casts"] = {{"all", casts}, {"weights", weight_casts}, {"guarded", guarded_casts}};
  json["weights"] = {{"all", weights},
                     {"low", low_weights},
                     {"bytes_before", bytes_before},
                     {"bytes_after", bytes_after}};
  json["folded_batch_norms"] = folded_batch_norms;
  if (error) json["error"] = *error;
  json["operators"] = nlohmann::ordered_json::array();
  for (const ScriptOperator& one : operators) {
    json["operators"].push_back({{"operator", one.op},
                                 {"class", one.cast_class},
                                 {"calls", one.calls},
                                 {"modules", one.modules},
                                 {"why", one.why}});
  }
  json["warnings"] = warnings;
  return json.dump(2) + "\n";
}

}  // namespace mezzo::deploy
