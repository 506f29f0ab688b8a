// The place where ranks leave notes for each other: LibTorch's TCPStore or FileStore behind a key
// prefix of ours.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mezzo::parallel {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Empty if the key is not there. Does not wait.
  virtual std::string get(const std::string& key) = 0;
  virtual bool has(const std::string& key) = 0;
  /// Adds to a counter, 0 at first; returns its new value.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  /// Waits for keys; returns the indices of those that did not come within the limit.
  std::vector<int> wait(const std::vector<std::string>& keys, std::chrono::milliseconds limit);
};

struct StoreAddress {
  std::string host;  // TCP
  int port = 0;      // 0 with `serve`: the system chooses
  std::string path;  // or a shared file
  bool serve = false;
  int world_size = 1;
};

/// Opens a store; with `serve` this process hosts it, on the loopback alone where the host is the
/// loopback. Throws Error: unknown host, port in use, nobody there within the limit.
std::shared_ptr<Store> open_store(const StoreAddress& address, std::chrono::milliseconds limit,
                                  int* port_taken = nullptr);

/// The same store under a prefix.
std::shared_ptr<Store> under_prefix(const std::shared_ptr<Store>& store, const std::string& prefix);

/// The prefix of one start of one run: keys of earlier ones stay in a store that an agent keeps.
std::string run_prefix(const std::string& run_id, int restart_count, int generation);

/// Notes of failed collectives, under a run's prefix.
void record_failure(Store& store, int rank, const std::string& text);
/// The note of a rank; empty if there is none.
std::string recorded_failure(Store& store, int rank);

}  // namespace mezzo::parallel
