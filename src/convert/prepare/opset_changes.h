// Operators that changed meaning or form from opset to opset, and how a node is rewritten for it.
#pragma once

#include <string>
#include <string_view>

#include "convert/prepare/opset_edit.h"

namespace mezzo::convert {

/// Rewrites a node so that it means under opset `at` what it meant under the one before. Returns
/// why that cannot be done, or an empty text; most nodes need nothing.
std::string adapt(NodeEdit&, int at);

/// Did the operator's meaning or form change in that opset?
bool is_changed(std::string_view op, int at);

}  // namespace mezzo::convert
