// The state that the original Amp saves: the scales of the losses with their counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/optimizer.h"

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace mezzo::amp {

/// One loss's scale, and the clean passes since it last moved.
struct ScalerState {
  double loss_scale = 0;
  std::int64_t unskipped = 0;

  friend bool operator==(const ScalerState&, const ScalerState&) = default;
};

/// An ordered mapping "loss_scaler0", "loss_scaler1", ... to scaler states. A plain value.
class MEZZO_API StateDict {
 public:
  /// How many scalers, and their names in order.
  std::size_t size() const noexcept { return entries_.size(); }
  std::vector<std::string> keys() const;

  /// The state of that name; unknown: Error.
  ScalerState& at(const std::string& name);
  const ScalerState& at(const std::string& name) const;

  /// Adds an entry at the end; a name that is there already is an Error.
  void insert(const std::string& name, ScalerState state);

  /// Writes every entry to the archive.
  void save(torch::serialize::OutputArchive& archive) const;

  /// Replaces the content by the archive's. Throws Error, and changes nothing, if it holds
  /// something else.
  void load(torch::serialize::InputArchive& archive);

  friend bool operator==(const StateDict&, const StateDict&) = default;

 private:
  std::vector<std::pair<std::string, ScalerState>> entries_;
};

/// So that torch::save and torch::load take a StateDict, also nested in an archive.
MEZZO_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                      const StateDict& dict);
MEZZO_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                     StateDict& dict);

/// The scales of all losses that the optimizer's `initialize` made. Reads them where they live on a
/// device.
MEZZO_API StateDict state_dict(const Optimizer& optimizer);

/// Takes them back, by name. Names that are not "loss_scaler" with a number, and scales that are
/// not positive and finite, throw Error before anything is changed. With fewer or more entries than
/// losses those that exist are taken, with one message.
MEZZO_API void load_state_dict(Optimizer& optimizer, const StateDict& dict);

}  // namespace mezzo::amp
