// Operators of which no node is made, whatever they compute.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace mezzo::deploy::detail {

/// Operators that are the tensor itself, as far as a model for use is concerned ("aten::detach").
const std::set<std::string>& identities();

/// Results that the values of tensors do not change, and texts, which no tensor holds: exceptions
/// alone read them.
const std::set<std::string>& static_facts();

/// Identities whose result shares no memory with the tensor.
bool is_view_free(std::string_view name);

/// Warnings and prints, which a model has no place for.
bool only_says(std::string_view name);

}  // namespace mezzo::deploy::detail
