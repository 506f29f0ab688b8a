// Operands of normalisations whose numbers may share an offset: 100 +- 0.3, or a mean of 0.7 beside
// a variance of 1e-6. The normalisation takes the offset away and makes the rest large, with
// all that rounding to the offset's digits has left of it. So nothing is rounded from where the
// offset comes from up to the normalisation.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <vector>

#include "convert/decide/pin_context.h"
#include "convert/decide/pins/common_offsets.h"
#include "convert/decide/pins/pins.h"
#include "convert/graph/walk.h"
#include "convert/onnx/fields.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kOffsetWhy = "a normalisation takes away what its numbers may share";
constexpr std::string_view kStatisticsWhy =
    "a batch normalisation whose mean is large beside its variance";

class Offsets {
 public:
  explicit Offsets(const PinContext& context) : context_(context), graph_(context.graph) {}

  void run() {
    const bool has_normalisation = std::ranges::any_of(
        graph_.nodes, [&](const Node& node) { return taken_away_by(node) != kNoOffset; });
    if (has_normalisation) normalisations();
    for (const Node& node : graph_.nodes) {
      if (context_.is_standard(node) && node.op == "BatchNormalization" && is_offset(node))
        keep_statistics(node);
    }
  }

 private:
  void normalisations() {
    const CommonOffsets offsets(context_);
    for (const Node& node : graph_.nodes) {
      const std::uint8_t wanted = taken_away_by(node);
      if (wanted == kNoOffset || node.inputs.empty()) continue;
      const std::size_t read = node.domain.empty() ? 1 : 2;  // the sum of what it skips, too
      for (std::size_t i = 0; i < std::min(read, node.inputs.size()); ++i) {
        if ((offsets.of(node.inputs[i]) & wanted) == 0) continue;
        context_.keep_node(context_.id_of(node), kOffsetWhy);
        keep_ways(offsets, node.inputs[i], wanted);
      }
    }
  }

  // The offsets that do not matter to what the node makes, though they do to what it reads. A
  // caller's mask is no offset of a softmax.
  std::uint8_t taken_away_by(const Node& node) const {
    if (node.schema == nullptr) return kNoOffset;
    const std::string name = node.qualified_name();
    constexpr std::array<std::string_view, 3> kOfChannels{
        "GroupNormalization", "InstanceNormalization", "MeanVarianceNormalization"};
    if (name == "LayerNormalization" || name == "com.microsoft::SkipLayerNormalization")
      return kOffsetOfRows | kGivenOffset;
    if (std::ranges::find(kOfChannels, name) != kOfChannels.end())
      return kOffsetOfChannels | kGivenOffset;
    if (name == "Softmax" || name == "LogSoftmax") return kOffsetOfRows;
    if (name == "Sub" && takes_mean_away(context_, node))
      return kOffsetOfRows | kOffsetOfChannels | kGivenOffset;
    return kNoOffset;
  }

  void keep_ways(const CommonOffsets& offsets, ValueId from, std::uint8_t wanted) {
    auto& seen = seen_[wanted];
    if (seen.empty()) seen.assign(graph_.values.size(), false);
    const WalkBounds bounds{.farthest = graph_.values.size()};
    const auto visit = [&](ValueId id, const Node* node) {
      if (!context_.is_open(id) || (offsets.of(id) & wanted) == 0) return Onward::kStop;
      context_.keep_value(id, kOffsetWhy);
      if (node == nullptr) return Onward::kAll;
      context_.keep_node(context_.id_of(*node), kOffsetWhy);
      const Kind kind = kind_of(node->op);
      const bool is_source = kind == Kind::kProduct || kind == Kind::kOther;
      return is_source ? Onward::kStop : Onward::kAll;
    };
    walk_back(graph_, {from}, bounds, visit, &seen);
  }

  std::vector<float> constant(const Node& node, std::size_t input) const {
    const bool is_there = input < node.inputs.size() && context_.is_constant(node.inputs[input]);
    return is_there ? context_.constants.floats(node.inputs[input]) : std::vector<float>();
  }

  // Does rounding what it reads cost a channel much of what it gives? Channels that training has
  // switched off give little, whatever they read.
  bool is_offset(const Node& node) const {
    const std::vector<float> scale = constant(node, 1);
    const std::vector<float> mean = constant(node, 3);
    const std::vector<float> variance = constant(node, 4);
    if (scale.empty() || mean.size() != scale.size() || variance.size() != scale.size())
      return false;
    double squares = 0;
    for (const float each : scale) squares += static_cast<double>(each) * each;
    const double usual = std::sqrt(squares / static_cast<double>(scale.size()));
    for (std::size_t i = 0; i < scale.size(); ++i) {
      const double deviation = std::sqrt(std::max(0.0F, variance[i]) + epsilon_of(node));
      const double lost = rounding() * std::abs(static_cast<double>(mean[i]) * scale[i]);
      if (lost > accepted() * usual * deviation) return true;
    }
    return false;
  }

  double epsilon_of(const Node& node) const {
    constexpr double kDefault = 1e-5;
    const Message* epsilon = graph_.attribute(node, "epsilon");
    if (epsilon == nullptr) return kDefault;
    return std::bit_cast<float>(
        static_cast<std::uint32_t>(epsilon->number(field::attribute::kFloat)));
  }

  bool is_half() const { return context_.low() == Element::kFloat16; }
  // The largest relative error of one rounding.
  double rounding() const { return is_half() ? 0x1p-11 : 0x1p-8; }
  // The share of a channel's deviation that it may cost.
  double accepted() const { return is_half() ? 1.0 / 32 : 1.0 / 16; }

  // The product before it makes the offset, so it stays float32 as well; and what that reads, if
  // the offset is no bias.
  void keep_statistics(const Node& norm) const {
    context_.keep_node(context_.id_of(norm), kStatisticsWhy);
    std::map<ValueId, int> products{{norm.inputs[0], 0}};
    walk_back(graph_, {norm.inputs[0]}, {}, [&](ValueId id, const Node* node) {
      if (!context_.is_open(id)) return Onward::kStop;
      const bool is_made = node != nullptr && is_product(node->op);
      if (node != nullptr && !is_made && !is_between(node->op)) return Onward::kStop;
      context_.keep_value(id, kStatisticsWhy);
      if (node == nullptr) return Onward::kAll;
      context_.keep_node(context_.id_of(*node), kStatisticsWhy);
      for (const ValueId in : node->inputs)
        products.try_emplace(in, products[id] + (is_made ? 1 : 0));
      if (!is_made) return Onward::kAll;
      return products[id] > 0 || has_bias(*node) ? Onward::kStop : Onward::kFirst;
    });
  }

  bool has_bias(const Node& product) const {
    constexpr std::size_t kBias = 2;
    return product.inputs.size() > kBias && context_.is_constant(product.inputs[kBias]);
  }

  const PinContext& context_;
  const Graph& graph_;
  std::map<std::uint8_t, std::vector<bool>> seen_;  // by what is taken away: kept values
};

}  // namespace

void pin_offsets(const PinContext& context) {
  Offsets(context).run();
}

}  // namespace mezzo::convert
