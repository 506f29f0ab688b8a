// The casts of one graph, each made once for a value and a type.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "deploy/script/method.h"

namespace mezzo::deploy::script {

/// Puts casts into the graph of a method while its blocks are walked in order.
class Casts {
 public:
  Casts(ScriptMethod& method, at::ScalarType low) : method_(method), low_(low) {}

  /// The value as a node before `user` reads it in the type `target` (kFloat or kLow): a tensor, an
  /// optional one, a list or a dictionary of them. Any other type stays as it is.
  /// @param is_real  it is known to be float32 or low, whatever the facts say
  torch::jit::Value* cast(torch::jit::Value* value, Kind target, torch::jit::Node* user,
                          bool is_real = false);

  /// The value in the type of `like`.
  torch::jit::Value* cast_like(torch::jit::Value* value, torch::jit::Value* like,
                               torch::jit::Node* user);

  /// The value in the types that it has in the original, tuples included.
  torch::jit::Value* restore(torch::jit::Value* value, torch::jit::Node* user);

  /// A block begins or ends: what is cast inside is not seen outside.
  void enter(torch::jit::Block* block);
  void leave();

  /// Forgets the casts of what the node, or a node inside it, writes.
  void forget_written(torch::jit::Node* node);

  std::int64_t made() const { return made_; }
  std::int64_t guarded() const { return guarded_; }

 private:
  using Key = std::pair<torch::jit::Value*, Kind>;
  struct Scope {
    torch::jit::Block* block;
    std::map<Key, torch::jit::Value*> casts = {};
  };

  at::ScalarType type_of(Kind target) const { return target == Kind::kLow ? low_ : at::kFloat; }
  torch::jit::Value* known(const Key& key) const;
  torch::jit::Node* place_for(torch::jit::Value* value, torch::jit::Node* user) const;
  void keep(const Key& key, torch::jit::Value* cast, const torch::jit::Node* where);
  torch::jit::Value* cast_plain(torch::jit::Value* value, Kind target, torch::jit::Node* where,
                                bool is_certain);
  torch::jit::Value* cast_list(torch::jit::Node* list, Kind target, torch::jit::Node* user);
  torch::jit::Value* call_cast(torch::jit::Value* value, Kind target, torch::jit::Node* where);

  ScriptMethod& method_;
  at::ScalarType low_;
  std::vector<Scope> scopes_;
  std::int64_t made_ = 0, guarded_ = 0;
};

}  // namespace mezzo::deploy::script
