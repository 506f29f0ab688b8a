// Which operators and autograd functions a program calls, with the numbers it gives them.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "insight/epsilons.h"

namespace mezzo::insight {

struct CallList {
  /// Operators that were given a finite number beyond float16, each with it once.
  std::set<std::pair<std::string, double>> large_numbers;
  /// Classes of custom autograd functions.
  std::set<std::string> custom_functions;
  /// Small numbers that operators rely on and that float16 cannot hold.
  std::set<EpsilonUse> epsilons;
};

/// Calls the function under observation of this thread.
CallList calls_of(const std::function<void()>& function);

}  // namespace mezzo::insight
