#include "convert/mxnet/attribute_defaults.h"

#include <algorithm>
#include <iterator>

namespace mezzo::convert::mxnet {
namespace {

struct OperatorDefaults {
  std::string_view op;        // sorted
  std::string_view defaults;  // "name=value name=value"
};

constexpr OperatorDefaults kDefaults[] = {
#include "convert/mxnet/attribute_defaults_table.inc"
};

}  // namespace

std::optional<std::string_view> default_of(std::string_view op, std::string_view attribute) {
  const auto* const row = std::ranges::lower_bound(kDefaults, op, {}, &OperatorDefaults::op);
  if (row == std::end(kDefaults) || row->op != op) return {};
  std::string_view rest = row->defaults;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(' '));
    const std::size_t equals = item.find('=');
    if (item.substr(0, equals) == attribute) return item.substr(equals + 1);
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
  }
  return {};
}

}  // namespace mezzo::convert::mxnet
