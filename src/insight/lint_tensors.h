// Checks of single tensors that networks and TorchScript modules share.
#pragma once

#include <string>
#include <vector>

#include "core/torch.h"
#include "mezzo/insight_diagnosis.h"

namespace mezzo::insight {

inline constexpr double kLargestInHalf = 65504;
inline constexpr double kZeroInHalf = 2.98023e-8;  // half of its least number: rounds to zero

/// "range": a weight that is not finite, or that float16 cannot hold.
void check_range(const std::string& name, const at::Tensor& weight, std::vector<Finding>& into);

/// "sizes": a matrix that is no multiple of 8 both ways.
void check_matrix(const std::string& name, const at::Tensor& weight, std::vector<Finding>& into);

/// "buffer": a float buffer that whole-model levels cast.
void note_buffer(const std::string& name, std::vector<Finding>& into);

/// Errors first, then warnings, then hints.
void sort_by_severity(std::vector<Finding>& findings);

}  // namespace mezzo::insight
