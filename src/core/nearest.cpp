#include "core/nearest.h"

#include <algorithm>
#include <cctype>

namespace mezzo {
namespace {

bool same(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

// The beginning of a longer name: "--nproc" of "--nproc-per-node".
bool begins(std::string_view name, std::string_view other) {
  constexpr std::size_t kLeast = 4;
  return name.size() >= kLeast && name.size() < other.size() &&
         std::ranges::equal(name, other.substr(0, name.size()), same);
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::vector<std::string_view> nearest(std::string_view name,
                                      std::span<const std::string_view> names, std::size_t count) {
  struct Candidate {
    std::size_t distance;
    std::string_view name;
  };
  std::vector<Candidate> candidates;
  const std::size_t limit = std::max<std::size_t>(2, name.size() / 3);
  for (const std::string_view other : names) {
    const std::size_t difference =
        other.size() > name.size() ? other.size() - name.size() : name.size() - other.size();
    if (difference > limit) {
      if (begins(name, other)) candidates.push_back({limit + difference, other});
      continue;
    }
    const std::size_t distance = edit_distance(name, other);
    if (distance <= limit && distance < name.size()) candidates.push_back({distance, other});
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::distance);
  std::vector<std::string_view> found;
  for (const Candidate& candidate : candidates) {
    if (found.size() == count) break;
    if (std::ranges::find(found, candidate.name) == found.end()) found.push_back(candidate.name);
  }
  return found;
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> names) {
  const std::vector<std::string_view> found = nearest(name, names);
  std::string text;
  for (std::size_t i = 0; i < found.size(); ++i) {
    text += i == 0 ? "; did you mean '" : i + 1 == found.size() ? "' or '" : "', '";
    text += found[i];
  }
  if (!text.empty()) text += "'?";
  return text;
}

}  // namespace mezzo
