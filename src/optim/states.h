// The numbers of a step, shared by the rows of one group that were stepped equally often.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "kernels/recipes.h"

namespace mezzo::optim {

template <typename Scalars>
class ScalarTable {
 public:
  void clear() {
    keys_.clear();
    scalars_.clear();
  }
  /// Where the numbers of this group and step are; `make()` makes them the first time. `flag` tells
  /// apart what else the numbers depend on.
  template <typename Make>
  std::uint32_t index_of(std::size_t group, std::int64_t step, bool flag, const Make& make) {
    for (std::size_t i = keys_.size(); i-- > 0;) {
      const Key& key = keys_[i];
      if (key.group == group && key.step == step && key.flag == flag) {
        return static_cast<std::uint32_t>(i);
      }
    }
    keys_.push_back({group, step, flag});
    scalars_.push_back(make());
    return static_cast<std::uint32_t>(keys_.size() - 1);
  }
  std::span<Scalars> all() { return scalars_; }
  void add(const Scalars& scalars) { scalars_.push_back(scalars); }

 private:
  struct Key {
    std::size_t group;
    std::int64_t step;
    bool flag;
  };
  std::vector<Key> keys_;
  std::vector<Scalars> scalars_;
};

/// The table of whichever optimizer owns the work; its memory stays from step to step.
using AnyScalarTable = std::variant<
    ScalarTable<kernels::AdamScalars<double>>, ScalarTable<kernels::SgdScalars<double>>,
    ScalarTable<kernels::AdagradScalars<double>>, ScalarTable<kernels::LambScalars<double>>,
    ScalarTable<kernels::NovogradScalars<double>>>;

/// The settings of the groups, for any of the optimizers.
using AnyRecipes =
    std::variant<std::vector<kernels::AdamRecipe>, std::vector<kernels::SgdRecipe>,
                 std::vector<kernels::AdagradRecipe>, std::vector<kernels::LambRecipe>,
                 std::vector<kernels::NovogradRecipe>>;

}  // namespace mezzo::optim
