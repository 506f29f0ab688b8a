// Offsets that the numbers of a value may share: 100 +- 0.3. Operators that take a mean away show
// how much rounding them has cost.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "convert/decide/pin_context.h"

namespace mezzo::convert {

/// Kinds of offsets, one bit each.
enum Offset : std::uint8_t {
  kNoOffset = 0,
  kOffsetOfRows = 1,      ///< a constant adds nearly the same to all numbers of a row
  kOffsetOfChannels = 2,  ///< a constant adds much to each channel, though not the same to all
  kGivenOffset = 4,       ///< a caller gives it, who may give anything
};

/// Does the node take the mean of its first operand away from it?
bool takes_mean_away(const PinContext&, const Node&);

/// The offsets of all values of a graph, as far as its constants and inputs tell. Products of
/// matrices, and normalisations, have none but those of their bias.
class CommonOffsets {
 public:
  explicit CommonOffsets(const PinContext&);

  std::uint8_t of(ValueId id) const {
    return id == kNone ? std::uint8_t{kNoOffset} : offsets_[static_cast<std::size_t>(id)];
  }

 private:
  // The mean and the deviation from it of a constant's numbers.
  struct Moments {
    double mean = 0, deviation = 0;
  };

  void flow(ScopeId);
  void flow_into(ScopeId);
  void add(ValueId, std::uint8_t offset);
  std::uint8_t made_by(const Node&);
  std::uint8_t of_all(const Node&) const;
  std::uint8_t of_common(const Node&) const;
  std::uint8_t of_addends(const Node&);
  std::uint8_t of_bias(const Node&);
  std::uint8_t of_table(ValueId);
  std::uint8_t beside(ValueId constant, double gain);
  const std::optional<Moments>& moments(ValueId constant);
  bool has_scale(const Node&) const;
  double size_of_constant(ValueId);
  double gain_before(ValueId);
  double gain_of(const Node& product);

  const PinContext& context_;
  const Graph& graph_;
  std::vector<std::uint8_t> offsets_;  // per value
  std::map<ValueId, std::optional<Moments>> moments_;
  std::map<ValueId, double> gains_;                               // of weights
  std::map<ValueId, std::uint8_t> tables_;                        // by the table
  std::vector<std::optional<std::vector<std::int64_t>>> shapes_;  // read when weights ask
};

}  // namespace mezzo::convert
