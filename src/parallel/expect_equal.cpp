// Weights that ranks hold alike, as long as all do the same: the check that they do.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <sstream>

#include "mezzo/process_group.h"
#include "parallel/agreement.h"
#include "parallel/group.h"
#include "ranks/rank_list.h"

namespace mezzo::parallel {
namespace {

constexpr const char* kInExpectEqual = "expect_equal";
using Digests = std::vector<std::int64_t>;

// Digests are between 1 and this, and travel as themselves and as what is missing to it: all ranks
// have the same one if the two maxima add up to it. Zeros, of ranks without data, change nothing.
constexpr std::int64_t kWhole = std::int64_t{1} << 62;

std::int64_t digest_of(std::uint64_t hash) {
  return 1 + static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(kWhole - 1));
}

constexpr std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  return std::rotl((hash ^ word) * 0x9E3779B97F4A7C15ULL, 29);
}

std::int64_t digest_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().cpu().contiguous();
  const auto* bytes = static_cast<const std::byte*>(values.const_data_ptr());
  const std::size_t size = values.nbytes();
  std::uint64_t hash = mixed(size, static_cast<std::uint64_t>(values.scalar_type()));
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= size; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, sizeof(word));
    hash = mixed(hash, word);
  }
  std::uint64_t rest = 0;
  if (at < size) std::memcpy(&rest, bytes + at, size - at);
  return digest_of(mixed(hash, rest));
}

std::int64_t digest_of(const Digests& all) {
  std::uint64_t hash = all.size();
  for (const std::int64_t one : all) hash = mixed(hash, static_cast<std::uint64_t>(one));
  return digest_of(hash);
}

// The place of the first that is not the same on all ranks; their number if there is none.
std::size_t first_different(const Digests& mine, const ProcessGroup& group) {
  const auto count = static_cast<std::int64_t>(mine.size());
  const at::Tensor both = at::empty({2 * count}, at::kLong);
  auto* const values = both.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    values[2 * i] = mine[i];
    values[2 * i + 1] = kWhole - mine[i];
  }
  const at::Tensor agreed = agree_max(both, group);
  const auto* const largest = agreed.const_data_ptr<std::int64_t>();
  std::size_t place = 0;
  while (place < mine.size() && largest[2 * place] + largest[2 * place + 1] == kWhole) ++place;
  return place;
}

// Every rank's; 0 if it takes no part.
Digests of_all_ranks(std::int64_t mine, const ProcessGroup& group) {
  const at::Tensor slots = at::zeros({group.size()}, at::kLong);
  slots.mutable_data_ptr<std::int64_t>()[group.rank()] = mine;
  const at::Tensor agreed = agree_max(slots, group);
  const auto* const values = agreed.const_data_ptr<std::int64_t>();
  return {values, values + group.size()};
}

// Whom to ask about a difference: those who hold something else than most, or than the lowest ranks
// where as many hold the one as the other.
std::string who_differs(const Digests& all, const ProcessGroup& group) {
  std::map<std::int64_t, int> holders;
  for (const std::int64_t one : all) ++holders[one];
  std::int64_t usual = 0;
  for (const std::int64_t one : all) {
    if (one != 0 && (usual == 0 || holders[one] > holders[usual])) usual = one;
  }
  std::vector<int> others;
  std::vector<int> most;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != 0) (all[i] == usual ? most : others).push_back(group.ranks()[i]);
  }
  std::ostringstream text;
  text << (others.size() == 1 ? "rank " : "ranks ") << ranks::listed(others)
       << (others.size() == 1 ? " differs" : " differ") << " from rank"
       << (most.size() == 1 ? " " : "s ") << ranks::listed(most);
  return text.str();
}

}  // namespace

void expect_equal(const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                  const std::optional<ProcessGroup>& group) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) {
      raise<ConfigError>(kInExpectEqual, "'", name, "' is an undefined tensor");
    }
    if (tensor.layout() != at::kStrided) {
      raise<UnsupportedError>(kInExpectEqual, "'", name, "' is sparse; expected a dense tensor");
    }
  }
  const ProcessGroup members = group_or_world(group, kInExpectEqual);
  if (members.size() == 1) return;
  Digests mine;
  for (const auto& [name, tensor] : tensors) mine.push_back(digest_of(tensor));
  const Digests together{digest_of(static_cast<std::uint64_t>(mine.size())), digest_of(mine)};
  const std::size_t different = first_different(together, members);
  if (different == together.size()) return;
  if (different == 0) {
    raise(kInExpectEqual, who_differs(of_all_ranks(together[0], members), members),
          " in the number of tensors to compare; here there are ", mine.size());
  }
  const std::size_t place = first_different(mine, members);
  const at::Tensor& tensor = tensors[place].second;
  raise(
      kInExpectEqual, who_differs(of_all_ranks(mine[place], members), members), " in '",
      tensors[place].first, "' (here ", c10::toString(tensor.scalar_type()), " ", tensor.sizes(),
      "): from now on averaged gradients do not mean the same to all ranks. Something was written "
      "on one rank alone, or computed differently there; broadcast_all() or a checkpoint makes "
      "them equal again");
}

}  // namespace mezzo::parallel
