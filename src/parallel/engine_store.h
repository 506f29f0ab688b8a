// LibTorch's store inside ours: for the two files that talk to c10d.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "parallel/store.h"

namespace mezzo::parallel {

/// The store that open_store() and under_prefix() return.
class EngineStore final : public Store {
 public:
  explicit EngineStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::string get(const std::string& key) override {
    return has(key) ? store_->get_to_str(key) : std::string();
  }
  bool has(const std::string& key) override { return store_->check({key}); }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return store_->add(key, amount);
  }
  const c10::intrusive_ptr<c10d::Store>& engine() const { return store_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace mezzo::parallel
