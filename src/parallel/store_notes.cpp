#include <algorithm>
#include <numeric>
#include <thread>

#include "parallel/store.h"

namespace mezzo::parallel {

std::vector<int> Store::wait(const std::vector<std::string>& keys,
                             std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::vector<int> missing(keys.size());
  std::iota(missing.begin(), missing.end(), 0);
  // Asked again and again rather than by a waiting call, which would hold the connection.
  for (auto pause = std::chrono::milliseconds(2);;
       pause = std::min(2 * pause, decltype(pause)(50))) {
    std::vector<int> still;
    for (int i : missing) {
      if (!has(keys[static_cast<std::size_t>(i)])) still.push_back(i);
    }
    missing.swap(still);
    if (missing.empty() || std::chrono::steady_clock::now() >= end) return missing;
    std::this_thread::sleep_for(pause);
  }
}

std::string run_prefix(const std::string& run_id, int restart_count, int generation) {
  return "mezzo/" + run_id + "/" + std::to_string(restart_count) + "/" + std::to_string(generation);
}

void record_failure(Store& store, int rank, const std::string& text) {
  const std::string name = std::to_string(rank);
  const std::int64_t number = store.add("failure/count", 1);
  store.set("failure/order/" + std::to_string(number), name);
  store.set("failure/rank/" + name, text);
}

std::string recorded_failure(Store& store, int rank) {
  return store.get("failure/rank/" + std::to_string(rank));
}

}  // namespace mezzo::parallel
