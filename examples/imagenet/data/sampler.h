// Which images a rank takes in an epoch, in which order.
#pragma once

#include <cstdint>
#include <vector>

namespace examples::imagenet {

/// One rank of several.
struct Share {
  int rank = 0, ranks = 1;
};

/// `count` images in an order that follows from seed and epoch, dealt to the ranks in turn. All
/// ranks get the same number; where it does not divide, some images are dealt twice.
std::vector<std::int64_t> training_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch,
                                         Share share);

/// Every image once, in their own order, dealt to the ranks in turn: some ranks may get one more.
std::vector<std::int64_t> evaluation_order(std::int64_t count, Share share);

/// The steps of a training epoch. Images that do not fill a batch wait for another epoch, unless
/// they are all there are.
std::int64_t training_steps(std::int64_t count, int batch_size, int ranks);

}  // namespace examples::imagenet
