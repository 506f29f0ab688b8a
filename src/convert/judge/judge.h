// The judge of a conversion: an engine on the models as they are, and, where the engine rounds
// less, on models of ours that round every 16-bit value.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convert/decide/decide.h"
#include "convert/engine/runner.h"
#include "convert/judge/metrics.h"
#include "convert/judge/sensitivity.h"
#include "convert/prepare/prepare.h"
#include "convert/rewrite/apply.h"
#include "platform/temporaries.h"

namespace mezzo::convert {

/// A folder beside the target in which models are tried: made when it is first used, gone with this
/// object. One thread at a time.
class Workshop {
 public:
  explicit Workshop(std::filesystem::path target) : target_(std::move(target)) {}
  /// Throws Error if nothing can be written there.
  std::filesystem::path file(const std::string& name) const;

 private:
  std::filesystem::path target_;
  mutable std::unique_ptr<const platform::Temporary> folder_;
};

/// Samples that fit the model's declared inputs: the given files, or made up if there are none
/// (floats in [-1, 1], other types 1; unknown dimensions 1).
std::vector<Sample> samples_for(const Graph&, const std::vector<std::filesystem::path>& files);

/// Runs the original on samples and remembers what came out.
class Judge {
 public:
  /// `preparation`: what conversions do to the original first.
  Judge(std::shared_ptr<const Engine> engine, std::shared_ptr<ModelFile> original,
        Preparation preparation, std::vector<Sample> samples, const Workshop& workshop);

  /// Ranges of the float32 values over the samples.
  ValueRanges ranges(const Graph& graph) const;

  /// The error that each node adds by itself over the samples, worst first; nothing if the
  /// engine cannot measure it.
  std::vector<LocalError> local_errors(const Graph& graph, const Decisions&,
                                       const ConvertPolicy&) const;

  /// Errors of the decisions, every low value rounded (or the constants alone).
  SampleErrors errors(const ConvertPolicy&, const Evidence&, Storage emulation) const;

  const Engine& engine() const { return *engine_; }

  /// Errors of a finished model, run as a user would.
  SampleErrors errors_of(const std::filesystem::path& model) const;

 private:
  SampleErrors compare(const LoadedModel& session) const;

  std::shared_ptr<const Engine> engine_;
  std::shared_ptr<ModelFile> original_;
  Preparation preparation_;
  std::vector<Sample> samples_;
  const Workshop& workshop_;
  std::vector<std::string> outputs_;
  std::vector<std::vector<Array>> reference_;
};

/// The largest relative error of all outputs; infinite where one is not finite.
double largest_error(const std::vector<OutputError>& errors);

}  // namespace mezzo::convert
