#include "deploy/script/casts.h"

#include <algorithm>

#include "deploy/script/cast_functions.h"
#include "deploy/script/weights.h"

namespace mezzo::deploy::script {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

bool is_tensor(const Value& value) {
  return value.type()->kind() == c10::TypeKind::TensorType;
}

/// Is the block the node's, or inside one of the node's blocks?
bool is_inside(const Block* block, const Node* node) {
  for (; block != nullptr && block->owningNode() != nullptr;
       block = block->owningNode()->owningBlock()) {
    if (block->owningNode() == node) return true;
  }
  return false;
}

/// The type to which a value is cast that must have the original's; nothing if it has that.
std::optional<Kind> kind_to_restore(const Fact& now, const Fact& original) {
  if (original.kind == Kind::kLow)
    return now.kind == Kind::kFloat || now.kind == Kind::kReal ? std::optional(Kind::kLow)
                                                               : std::nullopt;
  if (now.kind == Kind::kLow || now.kind == Kind::kReal) return Kind::kFloat;
  const bool may_be_cast = original.kind == Kind::kUnknown || original.kind == Kind::kFloat;
  if (now.kind == Kind::kUnknown && now.touched && may_be_cast) return Kind::kFloat;
  return std::nullopt;
}

/// As above, for the tensors of a container.
bool must_restore(const Fact& now, const Fact& original) {
  if (kind_to_restore(now, original)) return true;
  for (std::size_t i = 0; i < now.parts.size(); ++i) {
    const Fact part = i < original.parts.size() ? original.parts[i] : Fact{.kind = Kind::kUnknown};
    if (must_restore(now.parts[i], part)) return true;
  }
  return false;
}

}  // namespace

void Casts::enter(Block* block) {
  scopes_.push_back({block});
}

void Casts::leave() {
  scopes_.pop_back();
}

Value* Casts::known(const Key& key) const {
  for (const Scope& scope : scopes_) {
    if (const auto found = scope.casts.find(key); found != scope.casts.end()) return found->second;
  }
  return nullptr;
}

void Casts::keep(const Key& key, Value* cast, const Node* where) {
  for (Scope& scope : scopes_) {
    if (scope.block == where->owningBlock()) scope.casts[key] = cast;
  }
}

/// Before the loops around the reader that the value comes from outside of, unless it is written.
Node* Casts::place_for(Value* value, Node* user) const {
  if (method_.aliases->hasWriters(value)) return user;
  Node* place = user;
  for (Node* owner = place->owningBlock()->owningNode();
       owner != nullptr && owner->kind() == c10::prim::Loop &&
       !is_inside(value->node()->owningBlock(), owner);
       owner = place->owningBlock()->owningNode()) {
    place = owner;
  }
  return place;
}

void Casts::forget_written(Node* node) {
  const torch::jit::AliasDb& aliases = *method_.aliases;
  for (Scope& scope : scopes_) {
    std::erase_if(scope.casts, [&](const auto& entry) {
      return aliases.writesToAlias(node, {entry.first.first});
    });
  }
}

Value* Casts::cast_plain(Value* value, Kind target, Node* where, bool is_certain) {
  ++made_;
  if (is_certain) return insert_to(value, type_of(target), where);
  ++guarded_;
  return call_cast(value, target, where);
}

Value* Casts::call_cast(Value* value, Kind target, Node* where) {
  const Kind from = target == Kind::kLow ? Kind::kFloat : Kind::kLow;
  const auto function = function_that_casts(value->type(), type_of(from), type_of(target));
  const torch::jit::WithInsertPoint here(where);
  return torch::jit::insertGraph(*where->owningGraph(), *function, {value}).at(0);
}

Value* Casts::cast(Value* value, Kind target, Node* user, bool is_real) {
  const Fact& fact = method_.converted->of(value);
  // A tensor that no cast has made is float32 already, or the caller's own low type.
  const bool is_own = fact.kind == Kind::kUnknown && target == Kind::kFloat && !fact.touched;
  const bool is_changed = is_castable(fact.kind) || (fact.kind == Kind::kUnknown && !is_own);
  if (!may_hold_tensors(value->type()) || !is_changed || fact.kind == target) return value;
  const Key key{value, target};
  if (Value* const before = known(key)) return before;
  Node* const list = value->node();
  const auto changes = method_.changing.find(value);
  const bool is_fixed = changes == method_.changing.end() || !changes->second;
  if (list->kind() == c10::prim::ListConstruct && is_fixed) return cast_list(list, target, user);
  Node* const where = place_for(value, user);
  Value* result = nullptr;
  if (is_tensor(*value)) {
    result = cast_plain(value, target, where, is_real || is_castable(fact.kind));
  } else {
    ++made_;
    ++guarded_;
    result = call_cast(value, target, where);
  }
  keep(key, result, where);
  return result;
}

Value* Casts::cast_list(Node* list, Kind target, Node* user) {
  std::vector<Value*> elements;
  bool is_same = true;
  for (Value* element : list->inputs()) {
    elements.push_back(cast(element, target, user));
    is_same = is_same && elements.back() == element;
  }
  if (is_same) return list->output();
  Node* const made = list->owningGraph()->create(c10::prim::ListConstruct, elements);
  made->output()->setType(list->output()->type());
  made->setScope(user->scope());
  made->insertBefore(user);
  keep({list->output(), target}, made->output(), user);
  return made->output();
}

Value* Casts::cast_like(Value* value, Value* like, Node* user) {
  const Fact& fact = method_.converted->of(value);
  const Fact& wanted = method_.converted->of(like);
  if (wanted.kind == Kind::kFloat || wanted.kind == Kind::kLow)
    return cast(value, wanted.kind, user);
  if (!is_tensor(*value) || (!is_castable(fact.kind) && fact.kind != Kind::kUnknown)) return value;
  ++made_;
  ++guarded_;
  const torch::jit::WithInsertPoint here(user);
  return torch::jit::insertGraph(*user->owningGraph(), *function_that_casts_like(low_),
                                 {value, like})
      .at(0);
}

Value* Casts::restore(Value* value, Node* user) {
  const Fact now = method_.converted->of(value);
  const Fact original = method_.original->of(value);
  const c10::TypePtr& type = value->type();
  if (type->kind() == c10::TypeKind::TupleType &&
      value->node()->kind() == c10::prim::TupleConstruct) {
    std::vector<Value*> parts;
    bool is_same = true;
    for (Value* part : value->node()->inputs()) {
      parts.push_back(restore(part, user));
      is_same = is_same && parts.back() == part;
    }
    if (is_same) return value;
    const auto tuple = type->cast<c10::TupleType>();
    Node* const made =
        user->owningGraph()->createTuple(parts, tuple->schema() == nullptr ? nullptr : tuple);
    made->setScope(user->scope());
    made->insertBefore(user);
    return made->output();
  }
  if (!may_hold_tensors(type) || !must_restore(now, original)) return value;
  if (const auto kind = kind_to_restore(now, original)) return cast(value, *kind, user);
  ++made_;
  ++guarded_;
  return call_cast(value, Kind::kFloat, user);
}

}  // namespace mezzo::deploy::script
