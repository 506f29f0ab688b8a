// Which class the calls of an operator have in a conversion: the operator table, changed by the
// caller's lists.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/torch.h"
#include "mezzo/deploy_script.h"
#include "operators/operators.h"
#include "policy/rules.h"

namespace mezzo::deploy::script {

/// The classes of all rows, of the table and registered.
class OperatorClasses {
 public:
  /// Throws ConfigError for unknown names, contradictions and types that are not low.
  explicit OperatorClasses(const ScriptOptions& options);

  DType low() const { return low_; }

  /// The row of an operator and its form; nothing if no list knows the operator.
  /// @param name  "aten::conv2d", or of another namespace, with the overload
  std::optional<Found> find(const std::string& name) const;

  CastClass class_of(std::size_t row) const;

  /// The table's row; null for a registered operator.
  static const Operator* table_row(std::size_t row);

  /// The condition of a row, if the caller gave one.
  const ConditionalRule* condition_of(std::size_t row) const;

  /// Does target_dtype_ops name a row with a condition? Its calls are low where that does not hold.
  bool is_low_otherwise(std::size_t row) const { return low_otherwise_.contains(row); }

  /// Why the row has its class.
  std::string why(std::size_t row) const;

 private:
  struct Change {
    std::string option, name;
    std::size_t width;
    CastClass cast_class;
  };

  void apply_list(const char* option, CastClass cast_class, const std::vector<std::string>& given);
  void put(const char* option, const std::string& name, CastClass cast_class);
  void apply_conditions(const std::vector<Conditional>& conditionals);

  DType low_;
  std::vector<CastClass> classes_;
  std::map<std::size_t, Change> changed_;
  std::vector<ConditionalRule> conditions_;
  std::set<std::size_t> low_otherwise_;
};

}  // namespace mezzo::deploy::script
