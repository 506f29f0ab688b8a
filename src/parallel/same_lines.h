// Do all ranks mean the same? Checked once, before sizes that differ could reach the transport.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/lane.h"

namespace mezzo::parallel {

/// Compares lines of text between the ranks of a lane: one small collective where they agree. Where
/// they do not, every rank throws a ConfigError that names the first line that differs from rank
/// 0's, and whose it is.
void check_same_lines(Lane& lane, const std::vector<std::string>& lines, std::string_view where);

}  // namespace mezzo::parallel
