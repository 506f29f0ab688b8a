#include "parameter_lists.h"

namespace mezzo::bench {

ParameterList resnet50() {
  ParameterList list{"ResNet-50, 161 tensors", {}};
  const auto conv = [&](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    list.sizes.push_back({out, in, kernel, kernel});
    list.sizes.push_back({out});  // the batch norm's weight
    list.sizes.push_back({out});  // and bias
  };
  conv(3, 64, 7);
  std::int64_t channels = 64;
  const std::int64_t blocks[] = {3, 4, 6, 3};
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const std::int64_t width = std::int64_t{64} << stage;
    for (std::int64_t block = 0; block < blocks[stage]; ++block) {
      conv(channels, width, 1);
      conv(width, width, 3);
      conv(width, 4 * width, 1);
      if (block == 0) conv(channels, 4 * width, 1);
      channels = 4 * width;
    }
  }
  list.sizes.push_back({1000, channels});
  list.sizes.push_back({1000});
  return list;
}

ParameterList gpt2() {
  constexpr std::int64_t kWidth = 768;
  ParameterList list{"GPT-2, 148 tensors", {{50257, kWidth}, {1024, kWidth}}};
  const auto norm = [&] {
    list.sizes.push_back({kWidth});
    list.sizes.push_back({kWidth});
  };
  const auto linear = [&](std::int64_t in, std::int64_t out) {
    list.sizes.push_back({in, out});
    list.sizes.push_back({out});
  };
  for (int layer = 0; layer < 12; ++layer) {
    norm();
    linear(kWidth, 3 * kWidth);
    linear(kWidth, kWidth);
    norm();
    linear(kWidth, 4 * kWidth);
    linear(4 * kWidth, kWidth);
  }
  norm();
  return list;
}

ParameterList many_small() {
  return {"10,000 tensors of 1,024", std::vector<std::vector<std::int64_t>>(10000, {1024})};
}

ParameterList one_flat() {
  return {"one tensor of 25.6 M", {{count_elements(resnet50())}}};
}

std::int64_t count_elements(const ParameterList& list) {
  std::int64_t total = 0;
  for (const auto& sizes : list.sizes) {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    total += count;
  }
  return total;
}

}  // namespace mezzo::bench
