// The search for what must stay float32 so that a tolerance is kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace mezzo::convert {

/// Nodes by their keys in a plan.
using NodeSet = std::set<std::string>;

/// What a search has judged so far, in a file beside the target: a search that was interrupted, or
/// ran out of its budget, goes on where it stopped.
class SearchJournal {
 public:
  /// Reads `path`. What stands there for another `purpose` (model, options, samples) is dropped.
  SearchJournal(std::filesystem::path path, std::uint64_t purpose);

  std::optional<double> find(const NodeSet& kept) const;
  void add(const NodeSet& kept, double error);
  std::size_t size() const { return errors_.size(); }
  /// The search is over: removes the file.
  void close();

 private:
  std::filesystem::path path_;
  std::uint64_t purpose_;
  std::map<std::uint64_t, double> errors_;  // by the hash of the set
};

/// A small set of nodes that must stay float32 for the error to be at most `tolerance`; none of its
/// parts that was tried can go. `candidates` are the low nodes in order of evaluation; `error_of`
/// judges a set. Stops with what it has when `may_go_on` says so.
///
/// Borders find single culprits by bisection; group testing, as in Zeller's delta debugging, then
/// gives back what turns out not to be needed.
NodeSet search_kept(const std::vector<std::string>& candidates, double tolerance,
                    const std::function<double(const NodeSet&)>& error_of,
                    const std::function<bool()>& may_go_on);

}  // namespace mezzo::convert
