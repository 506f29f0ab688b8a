// What must be true of a result before it replaces the target.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "convert/judge.h"
#include "convert/ort.h"

namespace mezzo::convert {

/// Judges one conversion as its options ask: measures ranges, searches for a tolerance, confirms
/// the result.
class Verifier {
 public:
  /// `graph` is the original raised to `opset` (0: as it is). Opens what the options need. Throws
  /// UnsupportedError where they cannot do without a judge and there is none.
  Verifier(const std::filesystem::path& original, int opset, const Graph&, const ConvertPolicy&,
           const std::filesystem::path& target);

  /// Samples were given: the ranges on them. Otherwise nothing.
  const ValueRanges* ranges() const { return ranges_ ? &*ranges_ : nullptr; }
  /// A tolerance was given: what must stay float32 for it. Otherwise nothing. Throws Error where
  /// the search does not find enough.
  const std::set<std::string>* kept(const Evidence& evidence, Report& report);
  /// Throws Error where the result does not hold what was asked for; fills the report's part.
  void confirm(const std::filesystem::path& result, const Evidence& evidence, Report& report);

  /// What the caller should know about the judges.
  const std::vector<std::string>& notes() const { return notes_; }

  const Workshop& workshop() const { return workshop_; }

 private:
  // The built-in evaluator where it is installed and knows every operator, else ONNX Runtime.
  void open_judge(int opset);
  std::vector<std::string> candidates_of(const Decisions&) const;
  Storage judged() const;
  std::uint64_t purpose_of_search(const Decisions&) const;
  void tell(std::string_view what, double share) const;
  void confirm_load(const std::filesystem::path& result, Report& report) const;
  double accepted(const Report& report) const;
  // Throws Error where the result is not finite; notes what was run.
  void confirm_run(const std::filesystem::path& result, const Evidence&, Report&) const;
  // Throws Error where it differs too much.
  void confirm_agreement(const Evidence&, Report&) const;

  std::filesystem::path original_;
  const Graph& graph_;
  const ConvertPolicy& policy_;
  std::filesystem::path target_;
  Workshop workshop_;
  std::shared_ptr<OrtRuntime> runtime_;
  std::string why_not_;
  std::vector<std::string> notes_;
  std::unique_ptr<Judge> judge_;
  std::optional<ValueRanges> ranges_;
  std::optional<std::set<std::string>> kept_;
};

}  // namespace mezzo::convert
