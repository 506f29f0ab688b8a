#include "deploy/follow_sizes.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "deploy/files/script_file.h"

namespace mezzo::deploy {
namespace {

namespace jit = torch::jit;

const jit::Value* tensor_at(const Recording& recording, const SizeOfTensor& size) {
  return size.is_input ? recording.graph->inputs()[size.output]
                       : recording.nodes[size.node]->output(size.output);
}

std::optional<std::vector<std::int64_t>> sizes_of(const jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  if (!type) return {};
  return type->sizes().concrete_sizes();
}

std::size_t atoms_in(const SizeExpression& expression) {
  std::size_t count = expression.kind == SizeExpression::Kind::kAtom ? 1 : 0;
  for (const SizeExpression& part : expression.parts) count += atoms_in(part);
  return count;
}

template <typename Test>
bool any_part(const SizeExpression& expression, const Test& test) {
  return test(expression) ||
         std::ranges::any_of(expression.parts,
                             [&test](const SizeExpression& part) { return any_part(part, test); });
}

/// All but rising linear functions of one size and products of sizes: what is missing to a multiple
/// of 4 is what is missing to one of 8 at half of all sizes, and falls from one size to the next.
bool is_doubtful(const SizeExpression& expression) {
  using Kind = SizeExpression::Kind;
  const auto adds = [](const SizeExpression& part) {
    return part.kind == Kind::kAdd || part.kind == Kind::kSubtract;
  };
  const auto divides_or_falls = [](const SizeExpression& part) {
    return part.kind == Kind::kDivide || (part.kind == Kind::kNumber && part.number < 0);
  };
  return any_part(expression, divides_or_falls) ||
         (any_part(expression, adds) && atoms_in(expression) > 1);
}

}  // namespace

SizeFollower::SizeFollower(const detail::NetworkCall& call, jit::Module& mirror,
                           std::vector<c10::IValue> values, std::vector<AxisOfInputs> axes,
                           std::string where)
    : call_(call),
      mirror_(mirror),
      values_(std::move(values)),
      axes_(std::move(axes)),
      where_(std::move(where)) {
  traces_.push_back(record(call_, values_, mirror_, {where_}));
}

/// Up to two other sizes of one axis at which the network runs: one far away, at which a map of a
/// thirty-second of an image has another size too, and one by a small step, or by one that
/// networks with strides and patches take.
std::vector<std::int64_t> SizeFollower::sizes_that_run(std::size_t axis) {
  const std::int64_t size = axes_[axis].size;
  const auto step = static_cast<std::int64_t>(axis);
  const std::int64_t far = std::max<std::int64_t>(far_step(size), 3);
  const std::vector<std::int64_t> near = {1 + step, 2 + step, 3 + step, 5 + step, 4, 8,        16,
                                          32,       64,       size,     2 * size, 7, -size / 2};
  std::vector<std::int64_t> found, base;
  base.reserve(axes_.size());
  for (const AxisOfInputs& one : axes_) base.push_back(one.size);
  std::string why;
  const auto try_size = [&](std::int64_t other) {
    if (other < 1 || other == size || std::count(found.begin(), found.end(), other) != 0) return;
    std::vector<std::int64_t> sizes = base;
    sizes[axis] = other;
    try {
      const at::NoGradGuard no_grad;
      call_.run(resized(values_, axes_, sizes));
      found.push_back(other);
    } catch (const std::exception& error) {
      if (why.empty()) why = reason_of(error);
    }
  };
  try_size(size + far);
  if (found.empty()) try_size(size + far / 2);
  for (const std::int64_t change : near) {
    if (found.size() < 2) try_size(size + change);
  }
  if (!found.empty()) return found;
  raise<UnsupportedError>(where_, "the axis '", axes_[axis].name,
                          "' cannot be dynamic: the network runs at no other size than ", size,
                          " that was tried. It said: ", why);
}

void SizeFollower::add_trace(const std::vector<std::int64_t>& sizes, const std::string& changed) {
  const std::vector<c10::IValue> inputs = resized(values_, axes_, sizes);
  Recording recording = record(call_, inputs, mirror_, {where_, "other sizes"});
  std::vector<std::size_t> constants;
  if (const auto parting = compare(traces_.front(), recording, &constants)) {
    raise<UnsupportedError>(
        where_, "the axis ", changed, " cannot be dynamic: the network does something else at ",
        "other sizes, first at ", place_of(traces_.front(), parting->node), ": ", parting->what,
        ". Loops over an axis and branches on a size are unrolled by a trace; a scripted module ",
        "keeps them");
  }
  traces_.push_back(std::move(recording));
  changed_.push_back(changed);
  other_inputs_ = {inputs};
}

std::vector<c10::IValue> SizeFollower::add_telling_traces(std::size_t axis,
                                                          std::vector<std::int64_t> sizes) {
  const std::int64_t base = sizes[axis];
  std::vector<c10::IValue> farthest, nearer;
  for (const std::int64_t change : {1, 2, 4, 8, 16, 32}) {
    sizes[axis] = base + change;
    std::vector<c10::IValue> inputs = resized(values_, axes_, sizes);
    std::optional<Recording> recording;
    try {
      recording.emplace(record(call_, inputs, mirror_, {where_, "other sizes"}));
    } catch (const std::exception&) {
      continue;  // the network does not run there
    }
    std::vector<std::size_t> constants;
    if (compare(traces_.front(), *recording, &constants)) continue;
    traces_.push_back(std::move(*recording));
    changed_.push_back("'" + axes_[axis].name + "'");
    nearer = std::exchange(farthest, std::move(inputs));
  }
  // Sizes that are equal at the others, as those of a multiple, differ there.
  if (!farthest.empty()) other_inputs_.push_back(farthest);
  return nearer.empty() ? farthest : nearer;
}

bool SizeFollower::is_doubtful_in(std::size_t first_trace, std::size_t traces) const {
  return std::ranges::any_of(followed_, [&](const Followed& followed) {
    if (!followed.whole || !is_doubtful(*followed.whole)) return false;
    const auto value_in = [&](std::size_t trace) {
      return jit::toIValue(traces_[trace].nodes[followed.node]->output())->toInt();
    };
    for (std::size_t trace = first_trace; trace < first_trace + traces; ++trace) {
      if (value_in(trace) != value_in(0)) return true;
    }
    return false;
  });
}

void SizeFollower::list_atoms() {
  atoms_.clear();
  seen_.clear();
  std::set<Seen> known;
  const auto add = [&](SizeOfTensor place) {
    std::vector<std::vector<std::int64_t>> all;
    for (const Recording& trace : traces_) {
      const auto sizes = sizes_of(tensor_at(trace, place));
      if (!sizes || (!all.empty() && sizes->size() != all[0].size())) return;
      all.push_back(*sizes);
    }
    for (std::size_t d = 0; d < all[0].size(); ++d) {
      Seen seen;
      for (const auto& sizes : all) seen.push_back(sizes[d]);
      if (std::all_of(seen.begin(), seen.end(), [&](auto one) { return one == seen[0]; })) continue;
      if (!known.insert(seen).second) continue;
      place.dimension = d;
      atoms_.push_back(place);
      seen_.push_back(std::move(seen));
    }
  };
  for (std::size_t i = 0; i < traces_[0].graph->inputs().size(); ++i) add({0, i, true, 0});
  for (std::size_t n = 0; n < traces_[0].nodes.size(); ++n) {
    for (std::size_t o = 0; o < traces_[0].nodes[n]->outputs().size(); ++o) add({n, o, false, 0});
  }
}

/// The operator that reads a constant, perhaps through a list.
std::string SizeFollower::use_of(std::size_t node) const {
  const jit::Node* reader = traces_[0].nodes[node];
  while (!reader->outputs().empty() && !reader->output(0)->uses().empty()) {
    reader = reader->output(0)->uses()[0].user;
    if (reader->kind() != c10::prim::ListConstruct) break;
  }
  const auto place = std::find(traces_[0].nodes.begin(), traces_[0].nodes.end(), reader);
  return place == traces_[0].nodes.end()
             ? std::string("the network's result")
             : place_of(traces_[0], static_cast<std::size_t>(place - traces_[0].nodes.begin()));
}

Followed SizeFollower::follow_constant(std::size_t node, std::size_t atoms_before) const {
  std::vector<c10::IValue> values;
  for (const Recording& trace : traces_)
    values.push_back(*jit::toIValue(trace.nodes[node]->output()));
  const std::vector<Seen> atoms(seen_.begin(),
                                seen_.begin() + static_cast<std::ptrdiff_t>(atoms_before));
  const auto all = [&](auto is) { return std::all_of(values.begin(), values.end(), is); };
  Followed followed{node, {}, {}};
  if (all([](const c10::IValue& value) { return value.isInt(); })) {
    Seen target;
    target.reserve(values.size());
    for (const c10::IValue& value : values) target.push_back(value.toInt());
    followed.whole = fit_sizes(atoms, target);
  } else if (all([](const c10::IValue& value) { return value.isDouble(); })) {
    std::vector<double> target;
    target.reserve(values.size());
    for (const c10::IValue& value : values) target.push_back(value.toDouble());
    followed.scaled = fit_scale(atoms, target);
  }
  if (followed.whole || followed.scaled) return followed;
  std::size_t other = 1;
  while (other + 1 < traces_.size() && values[other].isInt() == values[0].isInt() &&
         values[other].isInt() && values[other].toInt() == values[0].toInt())
    ++other;
  raise<UnsupportedError>(where_, "the axis ", changed_[other - 1],
                          " cannot be dynamic: ", use_of(node), " was given ", text_of(values[0]),
                          " at the examples' sizes and ", text_of(values[other]),
                          " at another, which no arithmetic on sizes explains. Let the module ",
                          "compute it with LibTorch's operators (at::size, arange), or script it");
}

void SizeFollower::follow() {
  if (axes_.empty()) return;
  std::vector<std::int64_t> base;
  std::vector<std::vector<std::int64_t>> found;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    base.push_back(axes_[axis].size);
    found.push_back(sizes_that_run(axis));
  }
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    for (const std::int64_t size : found[axis]) {
      std::vector<std::int64_t> sizes = base;
      sizes[axis] = size;
      add_trace(sizes, "'" + axes_[axis].name + "'");
    }
  }
  for (std::size_t round = 0; axes_.size() > 1 && round < 2; ++round) {
    std::vector<std::int64_t> sizes;
    std::string names;
    for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
      sizes.push_back(found[axis][(round + axis) % found[axis].size()]);
      names += (names.empty() ? "'" : ", '") + axes_[axis].name + "'";
    }
    add_trace(sizes, names);
  }
  explain();
  std::vector<std::size_t> doubtful;
  std::size_t first = 1;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (is_doubtful_in(first, found[axis].size())) doubtful.push_back(axis);
    first += found[axis].size();
  }
  std::vector<c10::IValue> last;
  for (const std::size_t axis : doubtful) last = add_telling_traces(axis, base);
  // An exporter takes the last inputs for comparison alone.
  if (!last.empty()) other_inputs_.push_back(std::move(last));
  if (!doubtful.empty()) explain();
}

void SizeFollower::explain() {
  list_atoms();
  followed_.clear();
  std::set<std::size_t> constants;
  for (std::size_t trace = 1; trace < traces_.size(); ++trace) {
    std::vector<std::size_t> differing;
    compare(traces_[0], traces_[trace], &differing);
    constants.insert(differing.begin(), differing.end());
  }
  for (const std::size_t node : constants) {
    std::size_t before = 0;
    while (before < atoms_.size() && (atoms_[before].is_input || atoms_[before].node < node))
      ++before;
    followed_.push_back(follow_constant(node, before));
  }
}

jit::Value* SizeFollower::emit_atom(std::size_t atom) {
  jit::Graph& graph = *traces_[0].graph;
  auto* const tensor = const_cast<jit::Value*>(tensor_at(traces_[0], atoms_[atom]));
  return graph.insert(c10::aten::size, {tensor, static_cast<std::int64_t>(atoms_[atom].dimension)});
}

jit::Value* SizeFollower::emit(const SizeExpression& expression) {
  using Kind = SizeExpression::Kind;
  jit::Graph& graph = *traces_[0].graph;
  if (expression.kind == Kind::kNumber) return graph.insertConstant(expression.number);
  if (expression.kind == Kind::kAtom) return emit_atom(expression.atom);
  static const std::map<Kind, c10::Symbol> operators = {{Kind::kAdd, c10::aten::add},
                                                        {Kind::kSubtract, c10::aten::sub},
                                                        {Kind::kMultiply, c10::aten::mul},
                                                        {Kind::kDivide, c10::aten::floordiv}};
  jit::Value* const left = emit(expression.parts[0]);
  jit::Value* const right = emit(expression.parts[1]);
  return graph.insert(operators.at(expression.kind), {left, right});
}

void SizeFollower::rewrite() {
  jit::Graph& graph = *traces_[0].graph;
  for (const Followed& followed : followed_) {
    jit::Node* const constant = traces_[0].nodes[followed.node];
    const jit::WithInsertPoint here(constant);
    jit::Value* value = nullptr;
    if (followed.whole) {
      value = emit(*followed.whole);
    } else {
      value = graph.insert(c10::aten::Float, {emit_atom(followed.scaled->atom)});
      if (std::abs(followed.scaled->power) != 1) value = graph.insert(c10::aten::sqrt, {value});
      jit::Value* const factor = graph.insertConstant(followed.scaled->factor);
      value = followed.scaled->power > 0 ? graph.insert(c10::aten::mul, {factor, value})
                                         : graph.insert(c10::aten::div, {factor, value});
    }
    constant->output()->replaceAllUsesWith(value);
  }
}

std::vector<std::int64_t> SizeFollower::atoms_of(const Recording& recording) const {
  std::vector<std::int64_t> sizes;
  for (const SizeOfTensor& atom : atoms_) {
    const auto all = sizes_of(tensor_at(recording, atom));
    sizes.push_back(all && atom.dimension < all->size() ? (*all)[atom.dimension] : -1);
  }
  return sizes;
}

void SizeFollower::check(const std::vector<c10::IValue>& other) {
  const Recording recording = record(call_, other, mirror_, {where_, "check_with"});
  std::vector<std::size_t> constants;
  if (const auto parting = compare(traces_[0], recording, &constants)) {
    raise(where_, "the network does something else on check_with than on the examples, first at ",
          place_of(traces_[0], parting->node), ": ", parting->what,
          ". A trace keeps one way only; a scripted module keeps branches and loops");
  }
  const std::vector<std::int64_t> sizes = atoms_of(recording);
  for (const std::size_t node : constants) {
    const c10::IValue value = *jit::toIValue(recording.nodes[node]->output());
    const auto followed = std::find_if(followed_.begin(), followed_.end(),
                                       [&](const Followed& one) { return one.node == node; });
    if (followed != followed_.end()) {
      if (followed->scaled) continue;
      if (value.isInt() && followed->whole->value(sizes) == value.toInt()) continue;
    }
    raise(where_, use_of(node), " was given ",
          text_of(*jit::toIValue(traces_[0].nodes[node]->output())), " on the examples and ",
          text_of(value), " on check_with: the network computed it itself from its inputs. If it ",
          "comes from a size, name the axis in dynamic_axes");
  }
}

}  // namespace mezzo::deploy
