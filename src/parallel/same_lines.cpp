#include "parallel/same_lines.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <sstream>

namespace mezzo::parallel {
namespace {

// FNV-1a: the same on every machine, unlike std::hash.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211ULL;
  return hash;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

[[noreturn]] void name_difference(const std::vector<std::string>& texts, std::string_view where) {
  const std::vector<std::string> first = split(texts.front());
  for (std::size_t other = 1; other < texts.size(); ++other) {
    if (texts[other] == texts.front()) continue;
    const std::vector<std::string> lines = split(texts[other]);
    for (std::size_t i = 0; i < std::max(first.size(), lines.size()); ++i) {
      const std::string mine = i < first.size() ? first[i] : "nothing more";
      const std::string theirs = i < lines.size() ? lines[i] : "nothing more";
      if (mine == theirs) continue;
      raise<ConfigError>(where, "ranks differ: rank 0 has '", mine, "' where rank ", other,
                         " has '", theirs, "'; all ranks must build the same model in the same ",
                         "order with the same options");
    }
  }
  raise<ConfigError>(where, "ranks differ");
}

}  // namespace

void check_same_lines(Lane& lane, const std::vector<std::string>& lines, std::string_view where) {
  if (lane.size() == 1) return;
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  const at::Tensor mine = at::empty({2}, at::kLong);
  mine.mutable_data_ptr<std::int64_t>()[0] = static_cast<std::int64_t>(hash_of(text));
  mine.mutable_data_ptr<std::int64_t>()[1] = static_cast<std::int64_t>(text.size());
  const at::Tensor all = at::empty({lane.size(), 2}, at::kLong);
  lane.all_gather(all, mine)->wait();
  const std::int64_t* values = all.const_data_ptr<std::int64_t>();
  bool same = true;
  std::int64_t longest = 0;
  for (std::int64_t rank = 0; rank < lane.size(); ++rank) {
    same = same && values[2 * rank] == values[0] && values[2 * rank + 1] == values[1];
    longest = std::max(longest, values[2 * rank + 1]);
  }
  if (same) return;
  const at::Tensor own = at::zeros({longest}, at::kByte);
  std::memcpy(own.mutable_data_ptr<std::uint8_t>(), text.data(), text.size());
  const at::Tensor everybody = at::empty({lane.size(), longest}, at::kByte);
  lane.all_gather(everybody, own)->wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < lane.size(); ++rank) {
    const auto* begin =
        reinterpret_cast<const char*>(everybody.const_data_ptr<std::uint8_t>()) + rank * longest;
    texts.emplace_back(begin, static_cast<std::size_t>(values[2 * rank + 1]));
  }
  name_difference(texts, where);
}

}  // namespace mezzo::parallel
