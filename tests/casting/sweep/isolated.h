// Work in a process of its own, which may crash or hang.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace mezzo::casting::sweep {

struct Isolated {
  std::string said;    // what the work has told until it ended
  bool ended = false;  // by itself
};

/// Runs `work(tell)` in a copy of this process; each `tell(line)` arrives even if a later line does
/// not. An exception ends the work with a line "threw ..." of its first line. The process must have
/// no other threads.
Isolated isolated(std::chrono::seconds limit,
                  const std::function<void(const std::function<void(const std::string&)>&)>& work);

}  // namespace mezzo::casting::sweep
