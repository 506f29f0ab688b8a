// Raises a model to a later opset, in all bodies, by adapters of our own.
#pragma once

#include <string>

#include "convert/document.h"

namespace mezzo::convert {

/// Raises the default domain's opset to `target`, editing the document's messages.
/// Operators whose meaning changed on the way are rewritten; types and values stay what they were.
/// Returns an empty text, or why it cannot be done; then the document is in no usable state.
/// Functions keep the opsets that they import.
std::string raise_opset(Document&, int target);

}  // namespace mezzo::convert
