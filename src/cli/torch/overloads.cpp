#include "core/torch.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <nlohmann/json.hpp>

#include "cli/torch/part.h"

namespace mezzo::cli {

nlohmann::ordered_json torch_overloads(const nlohmann::ordered_json& request) {
  std::string wanted = request.get<std::string>();
  if (wanted.find("::") == std::string::npos) wanted = "aten::" + wanted;
  auto found = nlohmann::ordered_json::array();
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const std::string full =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    if (name.name != wanted && full != wanted) continue;
    const auto handle = dispatcher.findSchema(name);
    if (handle && !handle->schema().is_mutable()) found.push_back(full);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace mezzo::cli
