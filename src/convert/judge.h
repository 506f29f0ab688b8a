// The judges of a conversion: ONNX Runtime on the models as they are, and on models of ours that
// round every 16-bit value.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "convert/apply.h"
#include "convert/decide.h"
#include "convert/ort.h"

namespace mezzo::convert {

/// A folder beside the target in which models are tried; gone with this object.
class Workshop {
 public:
  explicit Workshop(const std::filesystem::path& target);
  ~Workshop();
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;
  std::filesystem::path file(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};

/// Samples that fit the model's declared inputs: the given files, or made up where there are none
/// (floats in [-1, 1], other types 1; unknown dimensions 1).
std::vector<Sample> samples_for(const Graph&, const std::vector<std::filesystem::path>& files);

/// Runs the original on samples and remembers what came out.
class Judge {
 public:
  /// `opset`: what conversions raise the original to first; 0: nothing.
  Judge(std::shared_ptr<OrtRuntime> runtime, std::filesystem::path original, int opset,
        std::vector<Sample> samples, const Workshop& workshop);

  /// Ranges of all float32 values of the main graph over the samples.
  ValueRanges ranges(const Graph& graph) const;

  /// Errors of the decisions, every low value rounded (or the constants alone). Worst over samples.
  std::vector<OutputError> errors(const ConvertPolicy&, const Evidence&, Storage emulation) const;

  /// Errors of a finished model, run as a user would.
  std::vector<OutputError> errors_of(const std::filesystem::path& model) const;

 private:
  std::vector<OutputError> compare(const OrtSession& session) const;

  std::shared_ptr<OrtRuntime> runtime_;
  std::filesystem::path original_;
  int opset_;
  std::vector<Sample> samples_;
  const Workshop& workshop_;
  std::vector<std::string> outputs_;
  std::vector<std::vector<Array>> reference_;
};

/// The largest relative error of all outputs; infinite where one is not finite.
double largest_error(const std::vector<OutputError>& errors);

/// The smallest set of nodes (plan keys) found that must stay float32 for the error to be at most
/// `tolerance`. `candidates` are the low nodes in order of evaluation; `error_of` judges a set.
/// Stops with what it has after `budget` judgements; `attempts` counts them.
std::set<std::string> search_kept(
    const std::vector<std::string>& candidates, double tolerance, int budget,
    const std::function<double(const std::set<std::string>&)>& error_of, int* attempts);

}  // namespace mezzo::convert
