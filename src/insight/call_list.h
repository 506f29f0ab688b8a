// Which operators and autograd functions a program calls, with the numbers it gives them.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace mezzo::insight {

struct CallList {
  /// Operators that were given a finite number beyond float16, each with it once.
  std::set<std::pair<std::string, double>> large_numbers;
  /// Classes of custom autograd functions.
  std::set<std::string> custom_functions;
};

/// Calls the function under observation of this thread.
CallList calls_of(const std::function<void()>& function);

}  // namespace mezzo::insight
