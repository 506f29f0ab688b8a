// The candidates of a search for nodes that must stay float32: which may, which first, and which
// earlier judgements count.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "convert/decide/decide.h"

namespace mezzo::convert {

/// The nodes that may have to stay float32, in order of evaluation: low ones or, where only weights
/// are low, their readers.
std::vector<std::string> candidates_of(const Graph&, const ConvertPolicy&, const Decisions&);

/// Candidates, worst first.
struct RankedNodes {
  std::vector<std::string> nodes;
  std::size_t suspects = 0;  // so many of the first are not finite in the low type
};

/// The candidates, given in order of evaluation, by their own errors in steps of 3 dB. Among nearly
/// equal ones the later come first, since fewer nodes lie between them and the outputs that might
/// damp what they add. Those without an error of their own follow in their order.
RankedNodes ranked_by(const std::vector<LocalError>& errors,
                      const std::vector<std::string>& candidates);

/// Judgements count again for the same judge, model, samples, options and decisions.
std::uint64_t purpose_of_search(std::string_view judge, const std::filesystem::path& original,
                                const ConvertPolicy&, const Decisions&);

}  // namespace mezzo::convert
