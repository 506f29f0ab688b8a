#include "cli/torch/input_request.h"

#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/nearest.h"
#include "core/raise.h"
#include "core/scalar_type.h"

namespace mezzo::cli {

at::ScalarType type_named(const char* command, const std::string& name) {
  for (const DTypeRow& row : kDTypes) {
    if (name == row.name || name == row.alias || name == row.short_name)
      return scalar_type_of(row.dtype);
  }
  raise<ConfigError>(command, "'", name, "' is no type of an element");
}

std::vector<InputRequest> input_requests_of(const char* command,
                                            const nlohmann::ordered_json& list) {
  std::vector<InputRequest> inputs;
  for (const auto& each : list)
    inputs.push_back({each.at("text").get<std::string>(), each.at("name").get<std::string>(),
                      each.at("sizes").get<std::vector<std::int64_t>>(),
                      type_named(command, each.at("dtype").get<std::string>())});
  return inputs;
}

std::vector<InputRequest> in_order(const char* command, const std::vector<InputRequest>& inputs,
                                   const torch::jit::Module& module) {
  if (std::ranges::all_of(inputs, [](const auto& each) { return each.name.empty(); }))
    return inputs;
  std::vector<std::string_view> names;
  const auto& arguments = module.get_method("forward").function().getSchema().arguments();
  for (std::size_t i = 1; i < arguments.size(); ++i) names.push_back(arguments[i].name());
  std::vector<std::optional<InputRequest>> places(names.size());
  for (const InputRequest& each : inputs) {
    if (each.name.empty()) continue;
    const auto at = static_cast<std::size_t>(std::ranges::find(names, each.name) - names.begin());
    if (at == names.size()) {
      std::string all;
      for (const std::string_view name : names) (all += all.empty() ? "" : ", ") += name;
      raise<ConfigError>(command, "--input '", each.text, "': forward takes no '", each.name,
                         "'; expected one of ", all, did_you_mean(each.name, names));
    }
    if (places[at])
      raise<ConfigError>(command, "--input '", each.text, "' gives '", each.name,
                         "' a second time; expected each input once");
    places[at] = each;
  }
  for (const InputRequest& each : inputs) {
    if (!each.name.empty()) continue;
    const auto open = std::ranges::find_if(places, [](const auto& place) { return !place; });
    if (open == places.end())
      raise<ConfigError>(command, "--input '", each.text, "' is one more than forward takes, ",
                         names.size());
    *open = each;
  }
  std::vector<InputRequest> ordered;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!places[i]) continue;
    if (ordered.size() != i)
      raise<ConfigError>(command, "--input '", places[i]->text, "' leaves '", names[ordered.size()],
                         "' before it without a shape; expected one for each input");
    ordered.push_back(std::move(*places[i]));
  }
  return ordered;
}

}  // namespace mezzo::cli
