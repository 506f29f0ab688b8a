// When to ask whether a weight is still alive: often while it is young.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace mezzo::casting {

/// A model's weights live long, an input that wants a gradient lives for an iteration. Members are
/// asked when they are about 1, 2, 4, ... 32 units of time old; then all together, the more rarely
/// the more there are. So each unit of time costs the same on average, however many members live,
/// and who dies young is found within about the time that it lived.
template <typename Member>
class Generations {
 public:
  void add_young(Member member) { young_[0].push_back(member); }
  void add_old(Member member) { old_.push_back(member); }

  /// One unit of time. Members for which `is_gone(member)` holds are removed.
  template <typename IsGone>
  void pass(IsGone is_gone) {
    ++time_;
    if (++waited_ * kOldMembersPerUnit >= old_.size()) {
      waited_ = 0;
      std::erase_if(old_, is_gone);
    }
    // The oldest first: nobody is asked twice.
    for (std::size_t age = kGenerations; age-- > 0;) {
      if (time_ % (std::uint64_t{1} << age) != 0 || young_[age].empty()) continue;
      std::vector<Member>& older = age + 1 == kGenerations ? old_ : young_[age + 1];
      for (const Member& member : young_[age]) {
        if (!is_gone(member)) older.push_back(member);
      }
      young_[age].clear();
    }
  }

 private:
  static constexpr std::size_t kGenerations = 6;
  static constexpr std::size_t kOldMembersPerUnit = 8;

  std::array<std::vector<Member>, kGenerations> young_;
  std::vector<Member> old_;
  std::uint64_t time_ = 0;
  std::size_t waited_ = 0;
};

}  // namespace mezzo::casting
