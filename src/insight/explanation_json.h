// An explanation from the text that Explanation::to_json() gives.
#pragma once

#include <string>

#include "mezzo/insight_explain.h"

namespace mezzo::insight {

Explanation explanation_from_json(const std::string& text);

}  // namespace mezzo::insight
