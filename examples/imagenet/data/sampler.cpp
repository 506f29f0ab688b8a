#include "imagenet/data/sampler.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "imagenet/data/random.h"

namespace examples::imagenet {
namespace {

std::int64_t images_of_a_rank(std::int64_t count, int ranks) {
  return (count + ranks - 1) / ranks;
}

}  // namespace

std::vector<std::int64_t> training_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch,
                                         Share share) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  constexpr std::uint64_t kPurpose = 1;  // not the numbers that crops are made from
  Random random({seed, static_cast<std::uint64_t>(epoch), kPurpose});
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);

  std::vector<std::int64_t> mine;
  const std::int64_t each = images_of_a_rank(count, share.ranks);
  mine.reserve(static_cast<std::size_t>(each));
  for (std::int64_t i = 0; i < each; ++i)
    mine.push_back(all[static_cast<std::size_t>((i * share.ranks + share.rank) % count)]);
  return mine;
}

std::vector<std::int64_t> evaluation_order(std::int64_t count, Share share) {
  std::vector<std::int64_t> mine;
  for (std::int64_t i = share.rank; i < count; i += share.ranks) mine.push_back(i);
  return mine;
}

std::int64_t training_steps(std::int64_t count, int batch_size, int ranks) {
  return std::max<std::int64_t>(images_of_a_rank(count, ranks) / batch_size, 1);
}

}  // namespace examples::imagenet
