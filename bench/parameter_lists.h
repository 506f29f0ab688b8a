// The sizes of real networks' parameters, in the order of their modules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mezzo::bench {

struct ParameterList {
  std::string name;
  std::vector<std::vector<std::int64_t>> sizes;
};

/// 161 tensors, 25.6 million parameters (He et al. 2016).
ParameterList resnet50();
/// 148 tensors, 124 million parameters (Radford et al. 2019, the smallest).
ParameterList gpt2();
/// 10,000 tensors of 1,024.
ParameterList many_small();
/// One tensor with as many elements as resnet50().
ParameterList one_flat();

std::int64_t count_elements(const ParameterList&);

}  // namespace mezzo::bench
