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
  double accuracy = 0;             ///< on training data in this epoch so far, 0 to 1
  double items_per_second = 0;     ///< images, sentences, ... since the event before
  double scale = 1;                ///< of the loss, after this step
  std::int64_t skipped_steps = 0;  ///< in the whole run so far
  bool operator==(const StepTaken&) const = default;
};

/// An epoch has ended and the model was evaluated.
struct EpochEnded {
  std::int64_t epoch = 0;  ///< from 1
  double loss = 0;         ///< mean over the epoch's training steps that were looked at
  double accuracy = 0;     ///< on its training data, 0 to 1
  std::optional<double> test_accuracy = {};  ///< on data that training never sees, 0 to 1
  double seconds = 0;                        ///< of training, without the evaluation
  bool operator==(const EpochEnded&) const = default;
};

/// A run's figures: what a comparison puts side by side.
struct RunEnded {
  double test_accuracy = 0;                ///< 0 to 1
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

/// An event of any kind, as sinks get it.
using Event = std::variant<RunStarted, StepTaken, EpochEnded, RunEnded, Message>;

}  // namespace mezzo::report
