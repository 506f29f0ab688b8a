// Words that ranks send beside their statistics in a batch norm's forward, and the errors that
// follow. Where it lies on a device the host does not wait for it: it is read when it is there, a
// step late at most.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "parallel/device_numbers.h"

namespace mezzo::parallel {

/// The collective part of a rank's backward.
enum class Backward : std::int64_t {
  kNone = 0,     // its forward records nothing
  kWeights = 1,  // gradients of the weights alone: no collective
  kInput = 2,    // the input's gradient too
  kAbsent = 3,   // no data, and whatever the others do
};

/// A forward's names in errors.
struct NormName {
  std::string where;
  std::string input;
};

/// Throws ConfigError if the ranks have one element per channel together.
void check_elements(const NormName& call, double count);

/// The words of all ranks in one forward.
class RankWords {
 public:
  /// `numbers`: [ranks, 2], double: each rank's count of elements a channel, and its Backward.
  RankWords(NormName name, const at::Tensor& numbers) : name_(std::move(name)), numbers_(numbers) {}

  bool arrived() const { return numbers_.arrived(); }
  /// The elements of a channel on all ranks. These wait until the words are there.
  double count() const;
  bool any_input() const;
  /// check_elements().
  void check_forward() const;
  /// For a rank that runs a backward with a collective: throws ConfigError if some rank recorded
  /// nothing.
  void check_backward() const;

 private:
  NormName name_;
  DeviceNumbers numbers_;
};

/// The words that a group's ranks have not heard yet.
class UnheardWords {
 public:
  /// Throws what the words that are there by now call for; waits for none, unless very many are on
  /// their way.
  void hear();
  /// A forward's.
  void add_forward(std::shared_ptr<const RankWords> words);
  /// A backward with a collective begins: its forward's words are checked at once if they are
  /// there.
  void add_backward(std::shared_ptr<const RankWords> words);

 private:
  struct Unheard {
    std::shared_ptr<const RankWords> words;
    bool of_backward;
  };
  void add(Unheard one);
  std::mutex mutex_;
  std::deque<Unheard> unheard_;
};

}  // namespace mezzo::parallel
