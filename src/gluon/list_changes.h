// A caller's changes to MXNet's lists, as classes of the operator table's rows.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "mezzo/cast_class.h"
#include "operators/mxnet_lists_table.h"

namespace mezzo::gluon {

inline constexpr const char* kInit = "gluon::init";

using RowClasses = std::vector<CastClass>;

/// The name on a caller's list that put a row where it is.
struct RowDecider {
  std::string name;
  CastClass cast_class = CastClass::kNeutral;
};
using RowDeciders = std::map<std::size_t, RowDecider>;

/// The rows of the operator table that a name of MXNet means, MXNet's meaning first.
std::vector<std::size_t> rows_meant_by(std::string_view name);

/// The class that MXNet's lists for a low type give to a name; nothing: it is on none.
std::optional<CastClass> listed_class_of(const ListedOperator& listed, DType low);

/// Which of two classes wins where names of one operator disagree: MXNet forces the greater ones.
int strength(CastClass cast_class);

/// The lists that a caller gave.
class ListChanges {
 public:
  /// `listed_for`: the changes are to MXNet's own lists for that type.
  explicit ListChanges(std::optional<DType> listed_for) : listed_for_(listed_for) {}

  /// ConfigError for names that mix with edits.
  void add(const char* option, CastClass cast_class, const std::vector<std::string>& given);

  /// Changes the classes. A name first decides about the rows that it means, then about those that
  /// a program calls for it as well and that nobody has named. Names of two lists that share a row
  /// give it the stronger class, if each has another row; else, and for unknown names: ConfigError.
  RowDeciders apply(RowClasses& classes) const;

 private:
  struct Change {
    const char* option;
    CastClass cast_class;
    std::vector<std::string> names, left_out;
    bool replaces = false;
  };
  bool is_on_default_list(const std::string& name, CastClass cast_class) const;
  void leave_out(const Change& change, RowClasses& classes, RowDeciders& named) const;

  std::optional<DType> listed_for_;
  std::vector<Change> changes_;
};

}  // namespace mezzo::gluon
