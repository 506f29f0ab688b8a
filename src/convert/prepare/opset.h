// Raises a model to a later opset, in all bodies, by adapters of our own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "convert/onnx/document.h"
#include "convert/onnx/element.h"

namespace mezzo::convert {

/// Raises the default domain's opset to `target`, editing the document's messages.
/// Operators whose meaning changed on the way are rewritten; types and values stay what they were.
/// Returns an empty text, or why it cannot be done; then the document is in no usable state.
/// Functions are raised too: runtimes refuse those whose operators mean something else than the
/// model's.
std::string raise_opset(Document&, int target);

}  // namespace mezzo::convert
