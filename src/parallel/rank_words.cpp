#include "parallel/rank_words.h"

#include <utility>
#include <vector>

#include "mezzo/error.h"

namespace mezzo::parallel {
namespace {

// A rank's pair.
double count_in(const double* pair) {
  return pair[0];
}
Backward backward_in(const double* pair) {
  return static_cast<Backward>(static_cast<std::int64_t>(pair[1]));
}

}  // namespace

void check_elements(const NormName& call, double count) {
  if (count != 1) return;
  raise<ConfigError>(call.where,
                     "the ranks have one element per channel together (this input: ", call.input,
                     "); a variance needs two or more");
}

double RankWords::count() const {
  const std::vector<double> numbers = numbers_.read();
  double sum = 0;
  for (std::size_t at = 0; at < numbers.size(); at += 2) sum += count_in(&numbers[at]);
  return sum;
}

bool RankWords::any_input() const {
  const std::vector<double> numbers = numbers_.read();
  for (std::size_t at = 0; at < numbers.size(); at += 2) {
    if (backward_in(&numbers[at]) == Backward::kInput) return true;
  }
  return false;
}

void RankWords::check_forward() const {
  check_elements(name_, count());
}

void RankWords::check_backward() const {
  const std::vector<double> numbers = numbers_.read();
  for (std::size_t at = 0; at < numbers.size(); at += 2) {
    if (backward_in(&numbers[at]) != Backward::kNone) continue;
    raise<ConfigError>(name_.where, "this rank runs a backward, but rank ", at / 2,
                       " ran the forward without recording one; expected all ranks to record "
                       "gradients, or none");
  }
}

void UnheardWords::hear() {
  // A host that is so many norms ahead of its device has time to wait for the first of them.
  constexpr std::size_t kMost = 4096;
  for (;;) {
    Unheard first;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (unheard_.empty()) return;
      if (unheard_.size() < kMost && !unheard_.front().words->arrived()) return;
      first = std::move(unheard_.front());
      unheard_.pop_front();
    }
    if (first.of_backward) {
      first.words->check_backward();
    } else {
      first.words->check_forward();
    }
  }
}

void UnheardWords::add_forward(std::shared_ptr<const RankWords> words) {
  add({std::move(words), false});
}

void UnheardWords::add_backward(std::shared_ptr<const RankWords> words) {
  if (words->arrived()) return words->check_backward();
  add({std::move(words), true});
}

void UnheardWords::add(Unheard one) {
  const std::lock_guard<std::mutex> lock(mutex_);
  unheard_.push_back(std::move(one));
}

}  // namespace mezzo::parallel
