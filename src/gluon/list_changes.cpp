#include "gluon/list_changes.h"

#include <algorithm>
#include <iterator>

#include "core/raise.h"
#include "core/words.h"
#include "gluon/called_operators_table.h"
#include "operators/operators.h"
#include "policy/rules.h"

namespace mezzo::gluon {
namespace {

std::vector<std::size_t> known_rows(const std::string& name) {
  std::vector<std::size_t> rows = rows_meant_by(name);
  if (rows.empty() && !is_foreign(name)) raise_unknown_operator(name);
  return rows;
}

/// The rows that a program calls for a name besides those that it means.
std::vector<std::size_t> rows_called_for(std::string_view name) {
  constexpr std::string_view kSpaces[] = {"mx.nd.", "mx.sym.", "nd.", "sym."};
  for (const std::string_view space : kSpaces) {
    if (name.starts_with(space)) name.remove_prefix(space.size());
  }
  std::vector<std::size_t> rows;
  for (const CalledOperators& called : kCalledOperators) {
    if (!has_word(called.names, name)) continue;
    each_word(called.operators, [&](std::string_view op) {
      const std::vector<std::size_t> more = resolve("aten::" + std::string(op));
      rows.insert(rows.end(), more.begin(), more.end());
    });
  }
  return rows;
}

/// Do two names mean the same, or one a part of the other?
bool is_part(std::vector<std::size_t> a, std::vector<std::size_t> b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  return std::ranges::includes(a, b) || std::ranges::includes(b, a);
}

/// A name decides about a row, unless one of another list is stronger.
void decide(std::size_t row, const char* option, const RowDecider& decider, RowClasses& classes,
            RowDeciders& deciders) {
  const auto [before, is_new] = deciders.try_emplace(row, decider);
  if (!is_new && before->second.cast_class != decider.cast_class) {
    if (is_part(rows_meant_by(before->second.name), rows_meant_by(decider.name))) {
      raise<ConfigError>(kInit, option, ": '", decider.name, "' is on another list already, as '",
                         before->second.name, "'");
    }
    if (strength(before->second.cast_class) > strength(decider.cast_class)) return;
    before->second = decider;
  }
  classes[row] = decider.cast_class;
}

}  // namespace

std::vector<std::size_t> rows_meant_by(std::string_view name) {
  std::vector<std::size_t> rows = resolve("mx.nd." + std::string(name));
  return rows.empty() ? resolve(name) : rows;
}

std::optional<CastClass> listed_class_of(const ListedOperator& listed, DType low) {
  switch (listed.classes[static_cast<std::size_t>(row_of(low).low_column)]) {
    case 'l':
      return CastClass::kLow;
    case 'f':
      return CastClass::kFloat;
    case 'p':
      return CastClass::kPromote;
    case 'c':  // the values that count have operators of their own
    case 'n':
      return CastClass::kNeutral;
    default:
      return std::nullopt;
  }
}

int strength(CastClass cast_class) {
  constexpr CastClass kOrder[] = {CastClass::kNeutral, CastClass::kPromote, CastClass::kFloat,
                                  CastClass::kLow};
  return static_cast<int>(std::ranges::find(kOrder, cast_class) - std::begin(kOrder));
}

void ListChanges::add(const char* option, CastClass cast_class,
                      const std::vector<std::string>& given) {
  Change change{option, cast_class, {}, {}, false};
  const auto edits =
      static_cast<std::size_t>(std::ranges::count_if(given, [](const std::string& name) {
        return name.starts_with('+') || name.starts_with('-');
      }));
  if (edits != 0 && edits != given.size()) {
    raise<ConfigError>(kInit, option,
                       " mixes names with \"+Op\" and \"-Op\"; expected names alone, which replace "
                       "the default list, or edits alone");
  }
  change.replaces = edits == 0;
  for (const std::string& name : given) {
    auto& list = name.starts_with('-') ? change.left_out : change.names;
    list.push_back(change.replaces ? name : name.substr(1));
  }
  changes_.push_back(std::move(change));
}

/// Names that MXNet's lists do not have are ATen's: their rows have the class or not.
bool ListChanges::is_on_default_list(const std::string& name, CastClass cast_class) const {
  if (!listed_for_) return true;
  const auto listed = std::ranges::find(kMxnetLists, name, &ListedOperator::name);
  return listed == std::end(kMxnetLists) || listed_class_of(*listed, *listed_for_) == cast_class;
}

void ListChanges::leave_out(const Change& change, RowClasses& classes, RowDeciders& named) const {
  const auto drop = [&](std::size_t row) {
    if (classes[row] == change.cast_class) classes[row] = CastClass::kNeutral;
  };
  for (const std::string& name : change.left_out) {
    const std::vector<std::size_t> rows = known_rows(name);
    if (!is_on_default_list(name, change.cast_class)) continue;
    for (const std::size_t row : rows) {
      drop(row);
      named.try_emplace(row, RowDecider{name, CastClass::kNeutral});
    }
    for (const std::size_t row : rows_called_for(name)) drop(row);
  }
}

RowDeciders ListChanges::apply(RowClasses& classes) const {
  RowDeciders deciders, named;
  for (const Change& change : changes_) {
    for (std::size_t row = 0; change.replaces && row < classes.size(); ++row) {
      if (classes[row] == change.cast_class && !deciders.contains(row))
        classes[row] = CastClass::kNeutral;
    }
    leave_out(change, classes, named);
    for (const std::string& name : change.names) {
      for (const std::size_t row : known_rows(name))
        decide(row, change.option, {name, change.cast_class}, classes, deciders);
    }
  }
  named.insert(deciders.begin(), deciders.end());
  RowClasses called(classes.size(), CastClass::kNeutral);
  for (const Change& change : changes_) {
    for (const std::string& name : change.names) {
      for (const std::size_t row : rows_called_for(name)) {
        if (named.contains(row) || strength(called[row]) > strength(change.cast_class)) continue;
        classes[row] = called[row] = change.cast_class;
      }
    }
  }
  return deciders;
}

}  // namespace mezzo::gluon
