// "Did you mean": the names most like one that is not known.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mezzo {

/// The number of single characters to insert, delete, replace or swap with a neighbour to turn one
/// name into the other, case ignored.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// At most `count` of the names, the most similar first (equal ones in their given order, each
/// once); names that share too little with `name` to be meant by it are left out. Names that go on
/// where `name` ends come last.
std::vector<std::string_view> nearest(std::string_view name,
                                      std::span<const std::string_view> names,
                                      std::size_t count = 3);

/// "; did you mean 'softmax' or 'softmin'?", or nothing if no name is near: the end of an error
/// message.
std::string did_you_mean(std::string_view name, std::span<const std::string_view> names);

}  // namespace mezzo
