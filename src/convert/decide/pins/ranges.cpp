// Values whose magnitudes on the calibration data the low type does not hold.
#include <map>
#include <sstream>

#include "convert/decide/decide.h"
#include "convert/onnx/low.h"

namespace mezzo::convert {
namespace {

std::string range_text(const ConvertPolicy& policy, std::string_view value, double magnitude,
                       double limit, double floor) {
  const bool is_large = magnitude > limit;
  std::ostringstream text;
  text.precision(4);
  text << '\'' << value << (is_large ? "' reaches " : "' reaches only ") << magnitude
       << " on the calibration data, ";
  if (is_large) {
    text << "beyond " << limit << " (" << policy.options().headroom << " times below the range)";
  } else {
    text << "below " << floor << " (4 times the smallest normal value)";
  }
  if (policy.low() == Element::kFloat16) text << "; bfloat16 holds it";
  return text.str();
}

}  // namespace

void pin_ranges(const Graph& graph, const ConvertPolicy& policy, const ValueRanges& ranges,
                SlotMap& map) {
  const double limit = largest(policy.low()) / policy.options().headroom;
  // A value at half the smallest normal number loses as much as bfloat16 loses everywhere.
  // Underflow is gradual and overflow abrupt, so only the upper limit has headroom.
  const double floor = least_magnitude(policy.low());
  const std::map<ValueId, double> in_order(ranges.begin(), ranges.end());
  for (const auto& [id, magnitude] : in_order) {
    if (magnitude <= limit && (magnitude >= floor || magnitude == 0)) continue;
    const auto value = static_cast<std::size_t>(id);
    if (map.is_constant[value]) continue;  // judged by its values
    const std::string why = range_text(policy, graph.value(id).name, magnitude, limit, floor);
    map.slots.pin(map.native[value], Label::kHigh, Level::kNumeric, why);
    for (const Slot slot : map.uses[value]) map.slots.pin(slot, Label::kHigh, Level::kNumeric, why);
  }
}

}  // namespace mezzo::convert
