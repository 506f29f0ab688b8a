// Loops whose turns follow from inputs, as ONNX's Loop. The examples run such a loop first, apart
// from ONNX; its body is then gone through with samples of the turns as examples, so that sizes
// which change from turn to turn are seen to change.
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "deploy/files/script_file.h"
#include "deploy/onnx_turns.h"
#include "deploy/onnx_walk.h"

namespace mezzo::deploy::detail {
namespace {

namespace jit = torch::jit;

bool is_append(const jit::Node& node) {
  return node.kind().toQualString() == std::string("aten::append");
}

/// The values that the body appends to a list, in order; refuses all else that it does with it.
std::vector<const jit::Value*> appended_to(const jit::Block& body, const jit::Value* list) {
  for (const jit::Use& use : list->uses()) {
    const jit::Block* around = use.user->owningBlock();
    const bool direct = around == &body;
    while (around != nullptr && around != &body)
      around = around->owningNode() == nullptr ? nullptr : around->owningNode()->owningBlock();
    if (around == nullptr || (direct && is_append(*use.user))) continue;  // null: outside of it
    raise<UnsupportedError>(
        "export_onnx", "a loop whose turns follow from inputs reads a list that grows in it, or ",
        "lets it grow in a branch, which cannot be said in ONNX; ",
        is_append(*use.user) ? kSelectBehind : "carry what is read in a variable");
  }
  std::vector<const jit::Value*> appended;
  for (const jit::Node* node : body.nodes()) {
    if (is_append(*node) && node->input(0) == list) appended.push_back(node->input(1));
  }
  return appended;
}

convert::MadeValue body_input(const std::string& name, at::ScalarType type, bool scalar = false) {
  convert::MadeValue value;
  value.name = name;
  value.element = static_cast<convert::Element>(onnx_type(type));
  value.has_dims = scalar;
  return value;
}

void leaves_of(const c10::IValue& value, std::vector<c10::IValue>* leaves) {
  if (value.isTuple()) {
    for (const c10::IValue& each : value.toTupleRef().elements()) leaves_of(each, leaves);
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toListRef()) leaves_of(each, leaves);
  } else if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict()) leaves_of(item.value(), leaves);
  } else {
    leaves->push_back(value);
  }
}

[[noreturn]] void refuse_length() {
  raise<UnsupportedError>("export_onnx", "a list that a loop carries changes its length, which ",
                          "cannot be said in ONNX; let it grow with append()");
}

/// Copies of operands that stand for samples of a loop's turns instead of runs.
class Spread {
 public:
  Spread(Builder& builder, std::vector<std::size_t> run_of)
      : g_(builder), run_of_(std::move(run_of)) {}

  OnnxValue of(const OnnxValue& value) {
    const Operand& from = *value.operand();
    const auto known = known_.find(&from);
    if (known != known_.end()) return OnnxValue(known->second);
    const auto copy = std::make_shared<Operand>();
    known_.emplace(&from, copy);
    copy->kind = from.kind;
    copy->is_constant = from.is_constant;
    copy->is_size = from.is_size;
    copy->is_packed = from.is_packed;
    copy->path = from.path;
    copy->keys = from.keys;
    copy->type = from.type;
    if (from.kind == Operand::Kind::kValue && !from.is_constant) g_.name_of(value);
    copy->name = from.name;
    if (!from.examples.empty()) {
      for (const std::size_t run : run_of_) copy->examples.push_back(from.examples.at(run));
    }
    for (const OnnxValue& element : from.elements) copy->elements.push_back(of(element));
    return OnnxValue(copy);
  }

 private:
  Builder& g_;
  std::vector<std::size_t> run_of_;
  std::map<const Operand*, std::shared_ptr<Operand>> known_;
};

}  // namespace

/// One loop while it is translated.
class Walker::DynamicLoop {
 public:
  DynamicLoop(Walker& walker, const Node& node)
      : w_(walker), g_(walker.g_), node_(node), body_(*node.blocks()[0]), function_(node) {}

  void say() {
    run();
    add_carried();
    add_captured();
    const auto body = go_through_body();
    add_loop(body);
    leave();
  }

 private:
  /// A value that is carried from turn to turn, as one tensor.
  struct State {
    OnnxValue before;                    // around the loop
    std::vector<c10::IValue> in, after;  // on the samples; on the runs
    std::string inside, result;          // its names in the body, and after the loop
    at::ScalarType type = at::kFloat;
  };
  /// A list that grows, and what it grows by.
  struct Growth {
    const jit::Value* list;
    Names scans;
    std::size_t place;  // among what is captured
  };

  void run();
  template <typename LeafOf>
  void add_state(const OnnxValue& leaf, const LeafOf& leaf_of);
  void add_carried();
  void add_captured();
  void enter_body(const std::string& turn);
  void refuse_changes() const;
  Names results_of_body(const std::string& going);
  std::shared_ptr<convert::MadeGraph> go_through_body();
  void add_loop(const std::shared_ptr<convert::MadeGraph>& body);
  void leave();

  Walker& w_;
  Builder& g_;
  const Node& node_;
  const jit::Block& body_;
  LoopBody function_;
  std::vector<Turns> runs_;
  std::vector<const Turn*> samples_;
  std::vector<std::size_t> run_of_;   // of each sample
  std::vector<OnnxValue> given_;      // what the node carries, as it is before the loop
  std::vector<bool> stays_;           // is the same in all turns
  std::vector<State> states_;         // leaves of what is carried, then tensors that are written
  std::size_t own_states_ = 0;        // the former
  std::vector<std::size_t> written_;  // captured tensors
  std::vector<Growth> growths_;
  std::map<const jit::Value*, OnnxValue> outside_;  // captured values as they are around the loop
  std::vector<std::pair<OnnxValue, std::vector<OnnxValue>>> containers_;  // as the body begins
};

/// The loop on all runs. In an imagined one it ends elsewhere, unless sizes say where it ends.
void Walker::DynamicLoop::run() {
  const OnnxValue &count = w_.value(node_.input(0)), &condition = w_.value(node_.input(1));
  const bool by_sizes = body_.outputs()[0]->node()->kind() == c10::prim::Constant &&
                        (count.is_constant() || count.operand()->is_size) &&
                        condition.is_constant();
  for (std::size_t k = 0; k < g_.variants(); ++k) {
    std::vector<c10::IValue> carried, captured;
    for (std::size_t i = 2; i < node_.inputs().size(); ++i)
      carried.push_back(example_of(w_.value(node_.input(i)), k));
    for (const jit::Value* each : function_.captured())
      captured.push_back(example_of(w_.value(each), k));
    const auto most = example_of(count, k).toScalar().to<std::int64_t>();
    const bool goes = example_of(condition, k).toScalar().to<bool>();
    try {
      Turns turns = function_.run(most, goes, carried, captured);
      if (w_.is_imagined(k) && !by_sizes && turns.count == runs_[0].count) {
        const std::int64_t other = turns.count > 1 ? turns.count - 1 : turns.count + 1;
        turns = function_.run(most, goes, carried, captured, other);
      }
      runs_.push_back(std::move(turns));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      w_.fail(node_, reason_of(error));
    }
  }
  for (std::size_t k = 0; k < runs_.size(); ++k) {
    for (const Turn& turn : runs_[k].samples) {
      samples_.push_back(&turn);
      run_of_.push_back(k);
    }
  }
}

template <typename LeafOf>
void Walker::DynamicLoop::add_state(const OnnxValue& leaf, const LeafOf& leaf_of) {
  State state{leaf, {}, {}, g_.fresh("state"), g_.fresh("Loop_out"), at::kFloat};
  for (const Turn* turn : samples_) state.in.push_back(leaf_of(*turn));
  for (const Turns& run : runs_) state.after.push_back(leaf_of(run.after));
  const auto fits = [](const c10::IValue& one) {
    return one.isScalar() || (one.isTensor() && one.toTensor().defined());
  };
  for (const auto* part : {&state.in, &state.after}) {
    for (const c10::IValue& each : *part) {
      if (fits(each)) continue;
      raise<UnsupportedError>("export_onnx", "a loop whose turns follow from inputs carries a ",
                              each.tagKind(), ", which cannot be said in ONNX; carry tensors and ",
                              "numbers");
    }
  }
  state.type = element_type(state.in[0]);
  states_.push_back(std::move(state));
}

void Walker::DynamicLoop::add_carried() {
  for (std::size_t i = 2; i < node_.inputs().size(); ++i) {
    given_.push_back(w_.value(node_.input(i)));
    stays_.push_back(body_.outputs()[i - 1] == body_.inputs()[i - 1]);
    if (stays_.back()) continue;
    std::vector<OnnxValue> leaves;
    leaves_of(given_.back(), &leaves);
    for (std::size_t l = 0; l < leaves.size(); ++l) {
      add_state(leaves[l], [&](const Turn& turn) {
        std::vector<c10::IValue> all;
        leaves_of(turn.carried[i - 2], &all);
        if (all.size() != leaves.size()) refuse_length();
        return all[l];
      });
    }
  }
  own_states_ = states_.size();
}

void Walker::DynamicLoop::add_captured() {
  const auto& captured = function_.captured();
  for (std::size_t c = 0; c < captured.size(); ++c) {
    const OnnxValue outer = w_.value(captured[c]);
    outside_.emplace(captured[c], outer);
    const auto any = [&](const auto& test) {
      return std::any_of(runs_.begin(), runs_.end(), test);
    };
    if (any([&](const Turns& run) { return run.growths[c] != 0; }))
      growths_.push_back({captured[c], {}, c});
    if (!any([&](const Turns& run) { return run.is_written[c]; })) continue;
    if (outer.operand()->view)
      raise<UnsupportedError>("export_onnx", "a loop whose turns follow from inputs writes to a ",
                              "view in place; write to the tensor itself, by index");
    written_.push_back(c);
    add_state(outer, [&](const Turn& turn) { return turn.captured[c]; });
  }
  for (const auto& [value, outer] : outside_) {
    if (!outer.operand()->view) continue;
    for (const std::size_t c : written_) {
      if (outer.operand()->view->base == outside_.at(captured[c]).operand())
        raise<UnsupportedError>("export_onnx",
                                "a loop whose turns follow from inputs reads a view ",
                                "of what it writes in place; take the view inside the loop");
    }
  }
}

/// Values that the body reads stand for the samples from here on.
void Walker::DynamicLoop::enter_body(const std::string& turn) {
  Spread spread(g_, run_of_);
  for (const auto& [value, outer] : outside_) {
    const OnnxValue inside = spread.of(outer);
    containers_.emplace_back(inside, inside.operand()->elements);
    w_.set(value, inside);
  }
  std::vector<OnnxValue> inside;
  for (const State& state : states_) inside.push_back(made_of(state.inside, state.in));
  std::size_t next = 0;
  for (std::size_t i = 0; i < given_.size(); ++i)
    w_.set(body_.inputs()[i + 1],
           stays_[i] ? spread.of(given_[i]) : with_leaves(given_[i], inside, &next));
  for (std::size_t i = 0; i < written_.size(); ++i)
    w_.set(function_.captured()[written_[i]], inside[own_states_ + i]);
  g_.set_variants(samples_.size());
  g_.open_body();
  std::vector<c10::IValue> numbers;
  for (const Turn* each : samples_) numbers.emplace_back(each->number);
  w_.set(body_.inputs()[0], made_of(g_.op("Reshape", {turn, g_.ints({1})}), std::move(numbers)));
}

/// Whether to go on, the states, and what lists grow by.
Names Walker::DynamicLoop::results_of_body(const std::string& going) {
  const OnnxValue again = w_.value(body_.outputs()[0]);
  Names results = {again.is_constant() && again.to_bool()
                       ? g_.own_node("Identity", going)
                       : g_.op("Squeeze", {g_.state_of(again, at::kBool)})};
  std::vector<OnnxValue> ends;
  for (std::size_t i = 0; i < given_.size(); ++i) {
    if (!stays_[i]) leaves_of(w_.value(body_.outputs()[i + 1]), &ends);
  }
  for (const std::size_t c : written_) ends.push_back(w_.value(function_.captured()[c]));
  if (ends.size() != states_.size()) refuse_length();
  for (std::size_t s = 0; s < states_.size(); ++s) {
    const at::ScalarType type = element_type(example_of(ends[s], 0));
    if (type != states_[s].type)
      raise<UnsupportedError>("export_onnx", "a loop whose turns follow from inputs carries a ",
                              "value whose type changes from ", c10::toString(states_[s].type),
                              " to ", c10::toString(type), "; begin with that type");
    results.push_back(g_.own_node("Identity", g_.state_of(ends[s], type)));
  }
  for (Growth& growth : growths_) {
    for (const jit::Value* each : appended_to(body_, growth.list)) {
      const OnnxValue element = w_.value(each);
      if (element.operand()->kind != Operand::Kind::kValue)
        raise<UnsupportedError>("export_onnx",
                                "a list that grows in a loop holds lists or tuples, ",
                                "which cannot be said in ONNX; let it hold tensors");
      results.push_back(
          g_.own_node("Identity", g_.state_of(element, element_type(example_of(element, 0)))));
      growth.scans.push_back(g_.fresh("Loop_out"));
    }
  }
  return results;
}

/// The body changed copies of the containers around it.
void Walker::DynamicLoop::refuse_changes() const {
  for (const auto& [container, before] : containers_) {
    const std::vector<OnnxValue>& after = container.operand()->elements;
    if (after.size() == before.size() &&
        !std::ranges::equal(after, before, {}, &OnnxValue::operand, &OnnxValue::operand))
      raise<UnsupportedError>("export_onnx", "a loop whose turns follow from inputs changes an ",
                              "element of a list or an attribute; carry it in a variable");
  }
}

std::shared_ptr<convert::MadeGraph> Walker::DynamicLoop::go_through_body() {
  const std::size_t variants = g_.variants();
  const std::string turn = g_.fresh("turn"), going = g_.fresh("going");
  enter_body(turn);
  w_.block_of_loop(body_, run_of_);
  refuse_changes();
  const Names results = results_of_body(going);
  std::vector<convert::MadeValue> inputs = {body_input(turn, at::kLong, true),
                                            body_input(going, at::kBool, true)};
  for (const State& state : states_) inputs.push_back(body_input(state.inside, state.type));
  auto body = g_.close_body(results, std::move(inputs));
  g_.set_variants(variants);
  for (const auto& [value, outer] : outside_) w_.set(value, outer);
  return body;
}

void Walker::DynamicLoop::add_loop(const std::shared_ptr<convert::MadeGraph>& body) {
  const OnnxValue count = w_.value(node_.input(0)), condition = w_.value(node_.input(1));
  convert::MadeNode made;
  made.op = "Loop";
  std::string turns;
  if (!count.is_constant()) {
    turns = g_.op("Squeeze", {g_.list_of(count)});
  } else if (count.to_int() != std::numeric_limits<std::int64_t>::max()) {
    turns = g_.integer(count.to_int());
  }
  made.inputs.push_back(turns);
  const bool always = condition.is_constant() && condition.to_bool();
  made.inputs.push_back(
      always && !turns.empty() ? "" : g_.op("Squeeze", {g_.state_of(condition, at::kBool)}));
  for (const State& state : states_) {
    made.inputs.push_back(g_.state_of(state.before, state.type));
    made.outputs.push_back(state.result);
  }
  for (const Growth& growth : growths_)
    made.outputs.insert(made.outputs.end(), growth.scans.begin(), growth.scans.end());
  made.attributes["body"] = body;
  g_.add_node(std::move(made));
}

/// Results, tensors that were written, and lists that grew.
void Walker::DynamicLoop::leave() {
  std::vector<OnnxValue> results;
  for (const State& state : states_) results.push_back(made_of(state.result, state.after));
  std::size_t next = 0;
  for (std::size_t i = 0; i < given_.size(); ++i)
    w_.set(node_.outputs()[i], stays_[i] ? given_[i] : with_leaves(given_[i], results, &next));
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < written_.size(); ++i) {
    const OnnxValue outer = outside_.at(function_.captured()[written_[i]]);
    const State& state = states_[own_states_ + i];
    for (std::size_t k = 0; k < g_.variants(); ++k)
      outer.operand()->examples[k].toTensor().copy_(state.after[k].toTensor());
    w_.write(outer, state.result);
  }
  for (const Growth& growth : growths_) {
    std::vector<c10::IValue> lists;
    for (const Turns& run : runs_) lists.push_back(run.after.captured[growth.place]);
    w_.grow(outside_.at(growth.list), growth.scans, std::move(lists));
  }
}

void Walker::dynamic_loop(const Node& node) {
  DynamicLoop(*this, node).say();
}

}  // namespace mezzo::deploy::detail
