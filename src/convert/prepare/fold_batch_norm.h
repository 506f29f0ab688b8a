// Batch normalizations become part of the products before them.
#pragma once

#include <vector>

#include "convert/onnx/document.h"
#include "mezzo/convert.h"

namespace mezzo::convert {

/// Folds every batch normalization of inference whose parameters are constants into the weights and
/// the bias of the Conv, ConvTranspose, Gemm or MatMul before it, which nobody else reads; computed
/// in double. In bodies and functions too. Edits the document's messages; where nothing can be
/// folded they stay as they were. The edited model computes the same up to rounding; a second call
/// finds nothing. Returns every batch normalization, in file order, with what became of it.
std::vector<BatchNormFold> fold_batch_norms(Document&);

/// Did any go?
bool any_folded(const std::vector<BatchNormFold>&);

}  // namespace mezzo::convert
