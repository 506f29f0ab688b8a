// The networks whose whole steps are measured: ResNet-50, GPT-2 124M and SSD-512, or small ones of
// their kinds.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "device_check/networks.h"

namespace mezzo::device_check {

struct LargeNetworkRow {
  std::string_view name;
  /// Unit of `items`.
  std::string_view item;
  std::int64_t items, small_items;
  std::shared_ptr<CheckedNetwork> (*make)(bool small);
};

extern const std::array<LargeNetworkRow, 3> kLargeNetworks;

}  // namespace mezzo::device_check
