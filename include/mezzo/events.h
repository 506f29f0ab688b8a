// Events of a training run, as plain values: programs make them, sinks (report.h) write them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace mezzo::report {

/// Where a run took place.
struct Machine {
  std::string processor = {};  ///< the processor's name
  std::vector<std::string> instruction_sets =
      {};                                 ///< those that matter here: "avx2", "avx512_bf16"
  int cores = 0;                          ///< cores of the machine
  int threads = 0;                        ///< threads that LibTorch computed with
  std::vector<std::string> devices = {};  ///< "cpu", "cuda:0 (NAME)"
  std::map<std::string, std::string> versions = {};  ///< "mezzo", "libtorch", "compiler"
  std::map<std::string, std::string> compute = {};   ///< low type: how it computes here, and why
  bool operator==(const Machine&) const = default;
};

/// The first event of a run.
struct RunStarted {
  std::string run = {};              ///< its name: the level in a comparison of levels
  std::int64_t epochs = 0;           ///< how many are planned
  std::int64_t steps_per_epoch = 0;  ///< how many are planned in each
  std::int64_t batch_size = 0;       ///< items a step
  std::string items = "items";       ///< what a batch is made of: "images", "words"
  Machine machine = {};              ///< where it runs
  bool operator==(const RunStarted&) const = default;
};

/// One step, or the last of the few since the event before.
struct StepTaken {
  std::int64_t epoch = 0;          ///< from 1
  std::int64_t step = 0;           ///< from 1, over the whole run
  double loss = 0;                 ///< of this step, unscaled
  double accuracy = 0;             ///< on training data in this epoch so far, 0 to 1; NaN: unknown
  double items_per_second = 0;     ///< images, sentences, ... since the event before
  double scale = 1;                ///< of the loss, after this step
  std::int64_t skipped_steps = 0;  ///< in the whole run so far
  bool operator==(const StepTaken&) const = default;
};

/// An epoch has ended and the model was evaluated.
struct EpochEnded {
  std::int64_t epoch = 0;  ///< from 1
  double loss = 0;         ///< mean over the epoch's training steps that were looked at
  double accuracy = 0;     ///< on its training data, 0 to 1; NaN: unknown
  std::optional<double> test_accuracy = {};  ///< on data that training never sees, 0 to 1
  double seconds = 0;                        ///< of training, without the evaluation
  bool operator==(const EpochEnded&) const = default;
};

/// A run's figures: what a comparison puts side by side.
struct RunEnded {
  double test_accuracy = 0;                ///< 0 to 1; NaN: there was none
  double seconds_per_step = 0;             ///< median
  std::int64_t peak_memory_bytes = 0;      ///< above what the process held once its data was loaded
  std::int64_t parameter_bytes = 0;        ///< of the model's parameters
  std::int64_t master_bytes = 0;           ///< of float masters that are not themselves parameters
  std::int64_t optimizer_state_bytes = 0;  ///< momenta and the like
  double weight_casts_per_step = 0;        ///< weights cast to another type, mean
  double activation_casts_per_step = 0;    ///< other tensors cast to another type, mean
  std::int64_t skipped_steps = 0;          ///< after an overflow
  double final_scale = 1;                  ///< of the loss
  bool operator==(const RunEnded&) const = default;
};

/// Something worth a line: an overflow, a level that this machine runs slower than float.
struct Message {
  std::string text = {};  ///< one line, without its end
  bool operator==(const Message&) const = default;
};

/// The magnitudes of many values, against the range of a type.
struct Magnitudes {
  std::string type = {};   ///< whose range it is: "float16"
  std::int64_t count = 0;  ///< how many values there are; 0: there was no such tensor
  double norm = 0;         ///< Euclidean, of the finite values
  double largest = 0;      ///< the greatest finite magnitude
  double smallest = 0;     ///< the least magnitude that is not zero; 0: all are
  double zeros = 0;        ///< share that is zero, 0 to 1
  double subnormals = 0;   ///< share below the type's normal numbers, zeros left out
  double saturated = 0;    ///< share at the type's largest number or beyond, infinities included
  double nans = 0;         ///< share that is NaN
  int first_exponent = 0;  ///< the power of two at which `exponents` begins
  /// How many finite values have a magnitude in [2^e, 2^(e+1)), for e from `first_exponent` on;
  /// values outside of 2^-150 to 2^130 count at its ends, zeros do not.
  std::vector<std::int64_t> exponents = {};
  bool operator==(const Magnitudes&) const = default;
};

/// A parameter in a watched step, or all parameters of a module that the optimizer steps.
struct Watched {
  std::string module = {};     ///< the module's path
  std::string parameter = {};  ///< the parameter's whole name; empty: the module's together
  Magnitudes weights = {};     ///< as the network holds them after the step
  Magnitudes gradients = {};   ///< of the last backward pass, times the loss scale, as they flowed
  Magnitudes updates = {};     ///< by how much the step moved what the optimizer steps
  double update_ratio =
      0;  ///< norm of the updates to that of the values before them; NaN: both are 0
  bool operator==(const Watched&) const = default;
};

/// A step as insight::watch saw it.
struct StepWatched {
  std::int64_t step = 0;           ///< from 1, counted by the watch
  double scale = 1;                ///< that the gradients carry
  bool skipped = false;            ///< was the step skipped? Nothing moved then
  std::vector<Watched> rows = {};  ///< modules in the network's order, its parameters behind each
  bool operator==(const StepWatched&) const = default;
};

/// Why a step was skipped: an insight::Explanation in short.
struct SkipExplained {
  std::int64_t step = 0;                 ///< from 1, over the whole run
  std::string cause = {};                ///< "overflow", "gradient_overflow", ...
  std::string name = {};                 ///< of the first operator that failed; empty: none did
  std::string module = {};               ///< its module, or between which
  bool backward = false;                 ///< was it in the backward pass?
  std::string parameter = {};            ///< weights that are to blame, or reached first
  int rank = 0;                          ///< the process where it happened
  bool fails_in_float = false;           ///< no precision helps
  double scale = 1;                      ///< of the loss in that step
  std::string summary = {};              ///< one sentence
  std::vector<std::string> advice = {};  ///< the best first
  bool operator==(const SkipExplained&) const = default;
};

/// An operator that a dry run has something to say about.
struct AdvisedOperator {
  std::string type = {};        ///< the low type in question: "float16"
  std::string name = {};        ///< as the policy names it
  std::string cast_class = {};  ///< its class in the advised policy: "float"
  std::string reason = {};      ///< what was seen, with figures and the module
  bool operator==(const AdvisedOperator&) const = default;
};

/// The operators of one class in a dry run: their cost in float and under the default policy.
struct AdvisedCost {
  std::string type = {};         ///< the low type of that policy
  std::string cast_class = {};   ///< by the default lists
  std::int64_t calls = 0;        ///< a step
  double float_seconds = 0;      ///< forward and backward, a step
  double low_seconds = 0;        ///< the same under the default policy
  std::int64_t float_bytes = 0;  ///< of their results
  std::int64_t low_bytes = 0;    ///< the same under the default policy
  bool operator==(const AdvisedCost&) const = default;
};

/// The advice of insight::dry_run.
struct PrecisionAdvised {
  std::int64_t steps = 0;                            ///< that were looked at
  std::string text = {};                             ///< the advice for a terminal, several lines
  std::map<std::string, std::string> policies = {};  ///< type ("float16"): a policy file
  std::vector<AdvisedOperator> operators = {};       ///< by type
  std::vector<AdvisedCost> costs = {};               ///< by type
  std::vector<std::string> odd_sizes = {};           ///< one sentence for each product
  bool operator==(const PrecisionAdvised&) const = default;
};

/// One operator call of a step at a level, against float; errors as insight::OperatorError.
struct ComparedOperator {
  std::string name = {};    ///< the operator
  std::string module = {};  ///< its module, or between which
  bool backward = false;    ///< of its derivative?
  std::string type = {};    ///< of its result at the level: "float16"
  double own = 0;           ///< that it adds by itself; infinite: an overflow
  double accumulated = 0;   ///< with all that came before; infinite: an overflow
  bool operator==(const ComparedOperator&) const = default;
};

/// One cast of that step.
struct ComparedCast {
  std::string name = {};       ///< the operator that it is for
  std::string module = {};     ///< that operator's module
  std::string parameter = {};  ///< the weight or buffer; empty: an activation
  std::int64_t input = 0;      ///< which of the operator's tensors, from 0
  std::string type = {};       ///< the low type
  double error = 0;            ///< of the operator's result, by this cast alone
  double seconds = 0;          ///< that it takes, once
  bool operator==(const ComparedCast&) const = default;
};

/// The findings of insight::shadow_run.
struct PrecisionCompared {
  std::string level = {};                        ///< that was compared with float
  double scale = 1;                              ///< of the loss
  std::string text = {};                         ///< for a terminal, several lines
  std::vector<ComparedOperator> operators = {};  ///< worst first
  std::vector<ComparedCast> casts = {};          ///< worst first
  bool operator==(const PrecisionCompared&) const = default;
};

/// An event of any kind, as sinks get it.
using Event = std::variant<RunStarted, StepTaken, EpochEnded, RunEnded, Message, StepWatched,
                           SkipExplained, PrecisionAdvised, PrecisionCompared>;

}  // namespace mezzo::report
