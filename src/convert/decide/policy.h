// The policy of one conversion: options resolved to a class per operator and answers per name.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "convert/decide/slots.h"
#include "convert/onnx/element.h"
#include "convert/onnx/low.h"
#include "convert/standard/custom_operators.h"
#include "mezzo/cast_class.h"
#include "mezzo/convert.h"

namespace mezzo::convert {

struct Profile;

struct ClassOf {
  CastClass cast = CastClass::kNeutral;
  Level level = Level::kDefault;
  std::string why;
};

/// A name pattern: exact, glob (* and ?), or /regular expression/.
class NamePattern {
 public:
  explicit NamePattern(std::string text);
  bool matches(std::string_view name) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::string expression_;
};

/// Input `index` of the nodes of that name, or of that operator.
struct InputPattern {
  NamePattern node;
  int index = 0;
  std::string text;
};

/// The region between two tensors.
struct RegionPattern {
  NamePattern from, to;
};

/// Throws ConfigError for options that cannot be.
class ConvertPolicy {
 public:
  /// `custom_texts`: descriptions of operators beside the files that the options name.
  explicit ConvertPolicy(const Options& options, std::vector<std::string> custom_texts = {});

  Element low() const { return low_; }
  const Options& options() const { return options_; }
  const Profile& profile() const { return *profile_; }
  /// Do results keep clear of what ONNX Runtime joins wrongly? In float16 alone it joins anything.
  bool avoids_joins() const;
  /// Did the caller leave out that pin?
  bool is_without(std::string_view pin) const;
  Allowed allowed() const { return {options_.clamp_weights, options_.raise_epsilons}; }
  /// By "Conv" or "com.microsoft::Gelu".
  ClassOf class_of(std::string_view op) const;
  /// The class if the options say nothing.
  CastClass default_class_of(std::string_view op) const;
  const CustomOperators& custom_operators() const { return *custom_; }
  /// The texts of the caller's descriptions, as plans keep them.
  const std::vector<std::string>& custom_texts() const { return custom_texts_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// The conditions on this operator.
  const std::vector<Conditional>& conditions() const { return conditions_; }
  const std::vector<NamePattern>& excluded() const { return excluded_; }
  const std::vector<NamePattern>& included() const { return included_; }
  const std::vector<NamePattern>& excluded_tensors() const { return excluded_tensors_; }
  const std::vector<InputPattern>& excluded_inputs() const { return excluded_inputs_; }
  const std::vector<RegionPattern>& excluded_regions() const { return excluded_regions_; }
  /// The type asked for an input or output: float32 or low.
  Label io_label(const std::string& name) const;

 private:
  void read_custom_operators();
  void check_operator(const std::string& op, std::string_view option);
  void read_list(const std::optional<std::vector<std::string>>& list, CastClass cast,
                 std::string_view option);

  Options options_;
  Element low_ = Element::kFloat16;
  const Profile* profile_ = nullptr;
  std::map<std::string, ClassOf, std::less<>> classes_;
  std::set<CastClass> replaced_;  // classes whose default lists the options replace
  std::vector<std::string> custom_texts_, warnings_;
  std::shared_ptr<const CustomOperators> custom_;
  std::vector<Conditional> conditions_;
  std::vector<NamePattern> excluded_, included_, excluded_tensors_;
  std::vector<InputPattern> excluded_inputs_;
  std::vector<RegionPattern> excluded_regions_;
};

}  // namespace mezzo::convert
