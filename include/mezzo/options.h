// The options of amp::initialize, and the values that the levels give them by default.
#pragma once

#include <c10/core/ScalarType.h>

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/loss_scale.h"
#include "mezzo/overflow_group.h"
#include "mezzo/policy.h"

namespace mezzo::amp {

/// A yes or no, but no pointer: `Options{"O2"}` would otherwise be an enabled O1.
class Enabled {
 public:
  template <typename T>
  requires(std::is_convertible_v<T, bool> && !std::is_pointer_v<std::decay_t<T>> &&
           !std::is_null_pointer_v<std::decay_t<T>>) constexpr Enabled(T&& value)
      : value_(static_cast<bool>(value)) {}
  constexpr operator bool() const noexcept { return value_; }  ///< The answer.

 private:
  bool value_;
};

/// The options of `initialize`. An unset optional keeps the level's default (`level_defaults`).
/// Options that contradict the level, or each other, throw ConfigError from `initialize`, which
/// then has changed nothing.
struct Options {
  /// False: as if Mezzo were not there. No cast, check, skip, message or collective.
  Enabled enabled = true;

  /// "O0" float, "O1" operators in half by policy, "O2" half weights with float masters, "O3" all
  /// half; "O4" and "O5" are O1 and O2 in bfloat16.
  std::string opt_level = "O1";

  /// Parameters, floating buffers and inputs become this type. Given explicitly it casts float64
  /// parameters too, the levels alone never do. `ScalarType::Undefined`: the model keeps the types
  /// it has, which may then be half.
  std::optional<at::ScalarType> cast_model_type = {};

  /// Cast operators by policy. False at O1 and O4 leaves the scaling alone; true is an error at
  /// other levels.
  std::optional<bool> patch_torch_functions = {};

  /// Batch norms of any kind keep float weights and statistics while the model is cast. An error at
  /// O1 and O4.
  std::optional<bool> keep_batchnorm_fp32 = {};

  /// The optimizer steps float copies of low-precision weights. An error at O1 and O4, whose
  /// weights are float.
  std::optional<bool> master_weights = {};

  /// A number or "dynamic".
  std::optional<LossScale> loss_scale = {};

  /// The type of the model's floating outputs. Unset: half and bfloat16 become float.
  /// `ScalarType::Undefined`: outputs leave as they come.
  std::optional<at::ScalarType> cast_model_outputs = {};

  /// How many losses have a scale of their own: `loss_id` goes from 0 to `num_losses` - 1.
  int num_losses = 1;

  /// The floor and ceiling of a dynamic scale. Unset floor: 2^-14. After 50 skipped steps in a row
  /// at the floor, `step` throws.
  std::optional<double> min_loss_scale = {};
  double max_loss_scale = 16777216.0;

  /// Where a dynamic scale begins, and after how many clean passes it doubles.
  double init_loss_scale = 65536.0;
  int growth_interval = 2000;

  /// 0 silent; 1 reports what was selected and what was noticed; 2 reports every cast too.
  int verbosity = 1;

  /// Gradients stay scaled until `step`, which unscales them itself; under O1 and O4 a fused
  /// optimizer takes them in the 16-bit type in which they were computed. Clip through the
  /// optimizer's own option (max_grad_norm) then. `master_params` and `Optimizer::param_groups`
  /// unscale them at once; a step by gradients that were written while they still had a scale is an
  /// Error. If a loss has several optimizers, or two of them own
  /// one parameter, gradients are unscaled when the scope is left, as by default.
  bool defer_unscale = false;

  /// Float masters at O5 take 2 bytes (and a bit) instead of 4 beside their bfloat16 weights: a
  /// weight is its master rounded, and what it lacks stands beside it. Weights, masters and
  /// optimizer state are the same bits as without, in memory, files and averages. For FusedAdam,
  /// FusedSGD and FusedLAMB, given as they are; other optimizers and levels are a ConfigError.
  ///
  /// In the optimizer's groups masters have gradients, but no values: reading those throws.
  /// `master_params` and `Model::named_masters` give them values, and with them their 4 bytes,
  /// until the next step. The groups' bare `step` throws. Weights that are written in place, and
  /// not by load_model_state_dict and its like, become their masters' values as a whole; what
  /// masters had beyond bfloat16 is then gone in that tensor, elements that kept their value
  /// included.
  bool split_masters = false;

  /// Look for infinities and NaNs and skip the step that has one. Unset: at O1, O2, O4 and O5, and
  /// wherever the scale is dynamic or not 1. Gradients of a plain backward() are looked at too.
  std::optional<bool> check_finite = {};

  /// State that a skipped step gives back besides weights and optimizer state: batch-norm
  /// statistics, and the state of the default random generators.
  bool protect_batchnorm = true;
  bool protect_rng = false;

  /// The ranks that share the overflow flag. Unset: all of an initialized process group.
  std::optional<OverflowGroup> overflow_group = {};

  /// Every so many `step`s of an optimizer the ranks of `overflow_group` compare their weights,
  /// masters and loss scales bit by bit (`Optimizer::expect_equal_ranks`); 0: never. Each check
  /// reads all weights once.
  int expect_equal_every = 0;

  /// The operator lists of O1 and O4; their low type must be the level's. Unset: the defaults.
  std::optional<Policy> policy = {};

  /// Where the model itself is cast (O2, O3, O5, and `cast_model_type`): the parameters, buffers
  /// and modules that keep float. Exact names ("head", "block.0.attention.cos"), globs ("*.norm*"),
  /// expressions ("/layer\\d+\\.table/"), or types of modules ("LayerNorm", as LibTorch's
  /// pretty_print names them). A module stands for everything in it. A pattern that matches
  /// nothing is an error that lists what there is.
  std::vector<std::string> keep_float = {};

  /// The messages of the first so many skipped steps, and StepResult::reason(), say which operator
  /// failed: "...; explained: mul (between stem and head) overflowed". For it the model's last call
  /// is made again, which leaves no trace and costs about three steps; until the next call its
  /// arguments and the gradients that reached its results are held, by reference. The rest of the
  /// program stays unknown: where the last call alone does not fail or cannot be made again (a call
  /// of another function than `forward`, arguments by pointer, steps that a device decides), the
  /// message says so, and insight::explain_overflow() finds it. 0: never. Not for networks that
  /// communicate with other processes in their forward pass.
  int explain_skips = 0;

  /// From command-line words: {"keep_batchnorm_fp32", "True"}. Keys are the names of the fields
  /// above (except `overflow_group`; `policy` names a TOML file, and `keep_float` is a list with
  /// commas); "None" leaves an option unset. An unknown key or a value of another kind throws
  /// ConfigError.
  MEZZO_API static Options from_flags(const std::map<std::string, std::string>& flags);
};

/// The properties in force for a model or optimizer: the level's row with the caller's changes.
struct Properties {
  bool enabled = false;
  std::string opt_level = {};
  std::optional<at::ScalarType> cast_model_type = {};
  bool patch_torch_functions = false;
  std::optional<bool> keep_batchnorm_fp32 = {};
  std::optional<bool> master_weights = {};
  LossScale loss_scale = {};

  friend bool operator==(const Properties&, const Properties&) = default;
};

/// The row of that level, as `initialize` would use it unchanged. Unknown level: ConfigError.
MEZZO_API Properties level_defaults(const std::string& opt_level);

}  // namespace mezzo::amp
