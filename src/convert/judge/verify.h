// Conditions that a result must meet before it replaces the target.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "convert/engine/ort.h"
#include "convert/judge/judge.h"
#include "convert/prepare/prepare.h"

namespace mezzo::convert {

/// Judges one conversion as its options ask: measures ranges, searches for a tolerance, confirms
/// the result.
class Verifier {
 public:
  /// `graph` is the original, raised as was chosen. Opens what the options need. Throws
  /// UnsupportedError if they cannot do without a judge and there is none.
  Verifier(std::shared_ptr<ModelFile> original, const OpsetChoice& opset, const Graph&,
           const ConvertPolicy&, const std::filesystem::path& target);

  /// Samples were given: measures the ranges on them. Otherwise nothing. Small values are not among
  /// them where products would stay float32 for their sake alone and the judge sees hardly a
  /// difference if they go low; the report's warnings say so.
  const ValueRanges* ranges(Report& report);
  /// A tolerance or a command was given, or a comparison on samples that fails: what must stay
  /// float32 for it. Otherwise, and where a plan has decided, nothing. Throws Error if the
  /// search does not find enough. With samples the report learns what single nodes add to the
  /// error.
  const std::set<std::string>* kept(const Evidence& evidence, Report& report);
  /// Throws Error if the result does not hold what was asked for; fills the report's part.
  void confirm(const std::filesystem::path& result, const Evidence& evidence, Report& report);
  /// As above, for a copy of the original, which is the result if there is nothing to convert:
  /// only the command is asked.
  void confirm_original(const std::filesystem::path& copy, Report& report);

  /// Notes to the caller about the judges.
  const std::vector<std::string>& notes() const { return notes_; }

  const Workshop& workshop() const { return workshop_; }

 private:
  // The built-in evaluator where it is installed and knows every operator, else ONNX Runtime.
  void open_judge();
  Storage judged() const;
  const std::set<std::string>* search(const Evidence&, const Decisions&,
                                      const std::vector<LocalError>&, Report&);
  // The error of what comes of keeping a set; infinite if the command refuses it.
  double error_of(const Evidence&, const std::set<std::string>& kept);
  [[noreturn]] void raise_unfound(std::string_view ended_by) const;
  void tell(std::string_view what, double share) const;
  void confirm_load(const std::filesystem::path& result, Report& report) const;
  // The cost of rounding the weights alone; nothing if that is all that is done.
  std::vector<OutputError> floor_of(const Evidence&) const;
  void let_small_go_low(Report&);
  // The error that a comparison accepts without a tolerance, whatever rounding the weights costs.
  double accepted_of_type() const;
  // The error that a comparison accepts without a tolerance: more than that of the type where
  // rounding the weights costs something, up to a cost that is too much by itself.
  double accepted(const std::vector<OutputError>& floor) const;
  // The accepted error, if the conversion as it is exceeds it.
  std::optional<double> limit_if_missed(const Evidence&);
  void confirm_by_engines(const std::filesystem::path& result, const Evidence&, Report&) const;
  // Asks, unless this very model was accepted in the search.
  void confirm_by_command(const std::filesystem::path& result, Report&) const;
  // Throws Error if the result is not finite; notes what was run.
  void confirm_run(const std::filesystem::path& result, const Evidence&, Report&) const;
  // Throws Error if it differs too much.
  void confirm_agreement(const Evidence&, Report&) const;

  std::shared_ptr<ModelFile> original_;
  OpsetChoice opset_;
  const Graph& graph_;
  const ConvertPolicy& policy_;
  std::filesystem::path target_;
  Workshop workshop_;
  std::shared_ptr<OrtRuntime> runtime_;
  std::string why_not_;
  std::vector<std::string> notes_;
  std::unique_ptr<Judge> judge_;
  std::string blame_;            // of the weights, for an error that made a comparison search
  std::optional<double> limit_;  // of errors: the tolerance, or what `compare` accepts
  std::optional<ValueRanges> ranges_;
  std::optional<std::set<std::string>> kept_;
  std::optional<std::set<std::string>> accepted_;  // by the command, in this run
  std::string refusal_;                            // of the command: the last one
};

}  // namespace mezzo::convert
