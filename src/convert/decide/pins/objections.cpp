#include "convert/decide/pins/objections.h"

#include <cstdint>
#include <sstream>

#include "convert/decide/pins/roles.h"
#include "convert/onnx/low.h"

namespace mezzo::convert {
namespace {

constexpr std::uint64_t kFewNumbers = 64;

template <typename... Parts>
std::string sentence(const Parts&... parts) {
  std::ostringstream text;
  text.precision(4);
  (text << ... << parts);
  return text.str();
}

}  // namespace

std::string range_objection(std::string_view what, const ConstantFacts& facts, Element low) {
  if (facts.overflowing != 0) {
    return sentence(what, " reaches ", facts.largest, ", beyond ", name_of(low), "'s ",
                    largest(low));
  }
  if (facts.largest != 0 && facts.largest < smallest_normal(low)) {
    return sentence(what, " reaches only ", facts.largest, ", below ", name_of(low),
                    "'s smallest normal value ", smallest_normal(low));
  }
  return {};
}

std::string objection(const Graph& graph, Constants& constants, ValueId id, const Node& node,
                      int index, Element low, const Allowed& allowed) {
  const ConstantFacts& facts = constants.facts(id);
  const std::string_view name = graph.value(id).name;
  const bool is_clamped = allowed.clamping && facts.overflowing != 0 &&
                          is_weight(graph, constants, id, node, index, low);
  if (facts.overflowing != 0 && !is_clamped && !is_open_bound(node, index, constants.values(id))) {
    const bool is_sentinel = facts.count == 1 && is_arithmetic(node);
    return range_objection(sentence(is_sentinel ? "mask value '" : "constant '", name, "'"), facts,
                           low);
  }
  const bool is_harmless = is_bias(graph, node, index, facts.count, low);
  const bool is_scalar = facts.count <= kFewNumbers && is_arithmetic(node);
  const bool is_tiny = facts.smallest != 0 && facts.smallest < smallest_normal(low);
  if (allowed.raising && is_tiny && is_epsilon(graph, facts.count, node, index)) return {};
  if (is_scalar && !is_harmless && is_tiny) {
    return sentence("epsilon '", name, "' is ", facts.smallest, ", below ", name_of(low),
                    "'s smallest normal value ", smallest_normal(low));
  }
  if (facts.largest != 0 && facts.largest < smallest_normal(low) && !is_harmless)
    return range_objection(sentence("constant '", name, "'"), facts, low);
  // Products with a large factor leave the range before anything sees it.
  const double factor_limit = low == Element::kFloat16 ? 1024.0 : 1e30;
  if (facts.count == 1 && node.op == "Mul" && facts.largest >= factor_limit) {
    return sentence("factor '", name, "' is ", facts.largest,
                    ", which takes products out of range");
  }
  if (facts.count == 1 && node.op == "Div" && index == 1 && facts.largest * factor_limit <= 1) {
    return sentence("divisor '", name, "' is ", facts.largest,
                    ", which takes quotients out of range");
  }
  return {};
}

}  // namespace mezzo::convert
