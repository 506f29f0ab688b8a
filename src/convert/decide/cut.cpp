#include "convert/decide/cut.h"

#include <algorithm>
#include <numeric>

namespace mezzo::convert {
namespace {

// Dinic's algorithm on one connected part.
class Flow {
 public:
  explicit Flow(std::size_t nodes) : first_(nodes, -1), level_(nodes), next_(nodes) {}

  void add(std::int32_t from, std::int32_t to, const Cost& capacity) {
    push(from, to, capacity);
    push(to, from, {});
  }

  void run(std::int32_t source, std::int32_t sink) {
    while (label(source, sink)) {
      next_ = first_;
      while (augment(source, sink)) {
      }
    }
  }

  // The nodes from which the sink can still be reached.
  std::vector<bool> reaches(std::int32_t sink) const {
    std::vector<bool> seen(first_.size(), false);
    std::vector<std::int32_t> stack{sink};
    seen[static_cast<std::size_t>(sink)] = true;
    while (!stack.empty()) {
      const std::int32_t node = stack.back();
      stack.pop_back();
      for (std::int32_t e = first_[static_cast<std::size_t>(node)]; e >= 0; e = arc(e).after) {
        const std::int32_t from = arc(e).to;
        if (seen[static_cast<std::size_t>(from)] || arc(e ^ 1).capacity == Cost{}) continue;
        seen[static_cast<std::size_t>(from)] = true;
        stack.push_back(from);
      }
    }
    return seen;
  }

 private:
  struct Arc {
    std::int32_t to, after;
    Cost capacity;
  };

  const Arc& arc(std::int32_t e) const { return arcs_[static_cast<std::size_t>(e)]; }

  void push(std::int32_t from, std::int32_t to, const Cost& capacity) {
    arcs_.push_back({to, first_[static_cast<std::size_t>(from)], capacity});
    first_[static_cast<std::size_t>(from)] = static_cast<std::int32_t>(arcs_.size()) - 1;
  }

  bool label(std::int32_t source, std::int32_t sink) {
    std::ranges::fill(level_, -1);
    std::vector<std::int32_t> queue{source};
    level_[static_cast<std::size_t>(source)] = 0;
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (std::int32_t e = first_[static_cast<std::size_t>(queue[i])]; e >= 0; e = arc(e).after) {
        const auto to = static_cast<std::size_t>(arc(e).to);
        if (arc(e).capacity == Cost{} || level_[to] >= 0) continue;
        level_[to] = level_[static_cast<std::size_t>(queue[i])] + 1;
        queue.push_back(arc(e).to);
      }
    }
    return level_[static_cast<std::size_t>(sink)] >= 0;
  }

  // One path along the levels, without recursion: chains may be as long as the graph.
  bool augment(std::int32_t source, std::int32_t sink) {
    path_.clear();
    std::int32_t at = source;
    while (at != sink) {
      std::int32_t& e = next_[static_cast<std::size_t>(at)];
      while (e >= 0 &&
             (arc(e).capacity == Cost{} || level_[static_cast<std::size_t>(arc(e).to)] !=
                                               level_[static_cast<std::size_t>(at)] + 1)) {
        e = arc(e).after;
      }
      if (e >= 0) {
        path_.push_back(e);
        at = arc(e).to;
        continue;
      }
      if (path_.empty()) return false;
      at = arc(path_.back() ^ 1).to;
      next_[static_cast<std::size_t>(at)] = arc(path_.back()).after;
      path_.pop_back();
    }
    Cost amount = arc(path_.front()).capacity;
    for (const std::int32_t e : path_) amount = std::min(amount, arc(e).capacity);
    for (const std::int32_t e : path_) {
      arcs_[static_cast<std::size_t>(e)].capacity -= amount;
      arcs_[static_cast<std::size_t>(e ^ 1)].capacity += amount;
    }
    return true;
  }

  std::vector<std::int32_t> first_;
  std::vector<std::int32_t> level_, next_;
  std::vector<std::int32_t> path_;
  std::vector<Arc> arcs_;
};

void add_bounded(Cost& sum, const Cost& cost) {
  sum += cost;
  sum = std::min(sum, Cut::kInfinite);
}

std::int32_t root(std::vector<std::int32_t>& parents, std::int32_t i) {
  while (parents[static_cast<std::size_t>(i)] != i) {
    auto& parent = parents[static_cast<std::size_t>(i)];
    parent = parents[static_cast<std::size_t>(parent)];
    i = parent;
  }
  return i;
}

}  // namespace

std::int32_t Cut::add_variable() {
  high_.emplace_back();
  low_.emplace_back();
  return static_cast<std::int32_t>(high_.size()) - 1;
}

void Cut::pay_if_low(std::int32_t variable, const Cost& cost) {
  add_bounded(low_[static_cast<std::size_t>(variable)], cost);
}

void Cut::pay_if_high(std::int32_t variable, const Cost& cost) {
  add_bounded(high_[static_cast<std::size_t>(variable)], cost);
}

void Cut::pay_if_split(std::int32_t a, std::int32_t b, const Cost& cost) {
  if (a != b) terms_.push_back({a, b, cost});
}

std::vector<bool> Cut::solve() const {
  const auto is_fixed = [&](std::int32_t i) {
    return high_[static_cast<std::size_t>(i)] >= kInfinite ||
           low_[static_cast<std::size_t>(i)] >= kInfinite;
  };
  // Fixed variables join nothing, so that the parts between them are solved apart.
  std::vector<std::int32_t> parents(high_.size());
  std::iota(parents.begin(), parents.end(), 0);
  for (const Term& term : terms_) {
    if (!is_fixed(term.a) && !is_fixed(term.b)) {
      parents[static_cast<std::size_t>(root(parents, term.a))] = root(parents, term.b);
    }
  }
  std::vector<std::vector<std::int32_t>> members(high_.size());
  std::vector<std::vector<const Term*>> terms(high_.size());
  std::vector<std::int32_t> local(high_.size());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(high_.size()); ++i) {
    if (is_fixed(i)) continue;
    auto& part = members[static_cast<std::size_t>(root(parents, i))];
    local[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(part.size()) + 2;
    part.push_back(i);
  }
  for (const Term& term : terms_) {
    const std::int32_t free = is_fixed(term.a) ? term.b : term.a;
    if (!is_fixed(free)) terms[static_cast<std::size_t>(root(parents, free))].push_back(&term);
  }
  std::vector<bool> low(high_.size(), false);
  for (std::size_t i = 0; i < high_.size(); ++i)
    low[i] = high_[i] >= kInfinite && low_[i] < kInfinite;
  constexpr std::int32_t kHigh = 0;
  constexpr std::int32_t kLow = 1;
  for (std::size_t p = 0; p < members.size(); ++p) {
    if (members[p].empty()) continue;
    Flow flow(members[p].size() + 2);
    bool has_reason = false;
    for (const std::int32_t i : members[p]) {
      const auto index = static_cast<std::size_t>(i);
      has_reason = has_reason || high_[index].casts != 0;
      if (low_[index] != Cost{}) flow.add(kHigh, local[index], low_[index]);
      if (high_[index] != Cost{}) flow.add(local[index], kLow, high_[index]);
    }
    const auto place = [&](std::int32_t i) {
      if (!is_fixed(i)) return local[static_cast<std::size_t>(i)];
      return low[static_cast<std::size_t>(i)] ? kLow : kHigh;
    };
    for (const Term* term : terms[p]) {
      const std::int32_t a = place(term->a);
      const std::int32_t b = place(term->b);
      has_reason = has_reason || a == kLow || b == kLow;
      if (a != b && a != kLow && b != kHigh) flow.add(a, b, term->cost);
    }
    if (!has_reason) continue;
    flow.run(kHigh, kLow);
    const std::vector<bool> is_low = flow.reaches(kLow);
    for (const std::int32_t i : members[p]) {
      low[static_cast<std::size_t>(i)] =
          is_low[static_cast<std::size_t>(local[static_cast<std::size_t>(i)])];
    }
  }
  return low;
}

}  // namespace mezzo::convert
