// Operators that a program named itself: custom ones of other namespaces, and ATen's own that no
// list has. They get row numbers behind the table's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/cast_class.h"

namespace mezzo {

/// A program's changes to one row by register_operator().
struct Registration {
  std::size_t row;
  CastClass cast_class;
};

/// Gives an operator a class in every policy made from now on, and a row if it has none: the
/// table's where the name is one of the table ("aten::linear": all rows that it means), else the
/// next free one, under `name` as it stands ("my_ops::roi_align", "aten::silu"). Again with another
/// class: the later one holds. Returns the rows. The caller has checked that the dispatcher knows
/// the operator. Thread-safe.
std::vector<std::size_t> register_operator(std::string_view name, CastClass);

/// Gives a name a row behind the table's without a class of its own (neutral), or returns the row
/// that it has. Thread-safe.
std::size_t row_for(std::string_view name);

/// The row of a name that a program registered; nothing if none did. Thread-safe.
std::optional<std::size_t> registered_row(std::string_view name);

/// The name of a row, of the table (without "aten::") or registered (as it was). Stable until the
/// process ends. Thread-safe.
std::string_view row_name(std::size_t row);

/// Rows of the table and registered ones. Thread-safe.
std::size_t row_count() noexcept;

/// Another number after each register_operator(). Thread-safe.
std::uint64_t registration_version() noexcept;

/// Everything registered until now, in order. Thread-safe.
std::vector<Registration> registrations();

}  // namespace mezzo
