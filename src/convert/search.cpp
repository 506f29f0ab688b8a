#include "convert/search.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "convert/hash.h"

namespace mezzo::convert {
namespace {

std::uint64_t hash_of(const NodeSet& nodes) {
  Hash hash;
  for (const std::string& node : nodes) hash.add(node);
  return hash.value();
}

NodeSet without(const NodeSet& all, const NodeSet& part) {
  NodeSet rest;
  std::ranges::set_difference(all, part, std::inserter(rest, rest.end()));
  return rest;
}

}  // namespace

SearchJournal::SearchJournal(std::filesystem::path path, std::uint64_t purpose)
    : path_(std::move(path)), purpose_(purpose) {
  std::ifstream in(path_);
  std::uint64_t written_for = 0;
  if (!(in >> written_for) || written_for != purpose_) return;
  std::uint64_t set = 0;
  std::string error;
  while (in >> set >> error) errors_[set] = std::strtod(error.c_str(), nullptr);
}

std::optional<double> SearchJournal::find(const NodeSet& kept) const {
  const auto found = errors_.find(hash_of(kept));
  if (found == errors_.end()) return std::nullopt;
  return found->second;
}

void SearchJournal::add(const NodeSet& kept, double error) {
  const bool is_first = errors_.empty();
  errors_[hash_of(kept)] = error;
  std::ofstream out(path_, is_first ? std::ios::trunc : std::ios::app);
  out.precision(17);
  if (is_first) out << purpose_ << '\n';
  out << hash_of(kept) << ' ' << error << '\n';
}

void SearchJournal::close() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

NodeSet search_kept(const std::vector<std::string>& candidates, double tolerance,
                    const std::function<double(const NodeSet&)>& error_of,
                    const std::function<bool()>& may_go_on) {
  NodeSet kept;
  const auto fits = [&](const NodeSet& set) { return error_of(set) <= tolerance; };
  // Everything behind a border stays float32: where moving the border by one node breaks the
  // tolerance, that node is to blame. Each further one takes a block twice as large along.
  std::size_t block = 1;
  std::vector<NodeSet> groups;
  while (may_go_on() && !fits(kept)) {
    std::size_t good = 0;  // so many low nodes are fine
    std::size_t bad = candidates.size();
    while (bad - good > 1 && may_go_on()) {
      const std::size_t middle = good + (bad - good) / 2;
      NodeSet tried = kept;
      tried.insert(candidates.begin() + static_cast<std::ptrdiff_t>(middle), candidates.end());
      (fits(tried) ? good : bad) = middle;
    }
    NodeSet guilty;
    for (std::size_t i = bad - std::min(bad, block); i < bad; ++i) guilty.insert(candidates[i]);
    guilty = without(guilty, kept);
    if (guilty.empty() && block >= candidates.size()) return kept;
    kept.insert(guilty.begin(), guilty.end());
    if (!guilty.empty()) groups.push_back(std::move(guilty));
    block *= 2;
  }
  // Give back what is not needed: whole groups first, then their halves.
  for (std::size_t g = 0; g < groups.size() && may_go_on(); ++g) {
    const NodeSet group = groups[g];
    if (NodeSet rest = without(kept, group); fits(rest)) {
      kept = std::move(rest);
    } else if (group.size() > 1) {
      const auto middle = std::next(group.begin(), static_cast<std::ptrdiff_t>(group.size() / 2));
      groups.emplace_back(group.begin(), middle);
      groups.emplace_back(middle, group.end());
    }
  }
  return kept;
}

}  // namespace mezzo::convert
