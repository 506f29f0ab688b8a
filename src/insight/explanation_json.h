// An explanation from the text that Explanation::to_json() gives.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "mezzo/insight_explain.h"

namespace mezzo::insight {

/// An operator with its ranges as Explanation::to_json() writes it.
nlohmann::ordered_json operator_json(const Operator& op);

Explanation explanation_from_json(const std::string& text);

}  // namespace mezzo::insight
