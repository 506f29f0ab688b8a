// Tables of weights: which constants may be stored in 16 bits though float32 is computed with them.
// Rounding is what happens to their numbers once, and nothing else: so they hold what was learned,
// nobody tells their numbers apart or takes them for places, angles or counts, and a product, a
// norm or a sum takes them in.
#include <algorithm>
#include <array>
#include <cmath>

#include "convert/decide/tables.h"
#include "convert/graph/walk.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/low.h"
#include "convert/standard/low_forms.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

// Numbers beyond this were not learned: they count or measure something.
constexpr double kLargestLearned = 256;

// The cost of rounding to the rows of a table, beside their numbers and beside what tells those of
// a row apart: a common offset is nothing to a norm, and the errors of what stands on it much.
class RowsOfTable {
 public:
  RowsOfTable(Element low, std::size_t rows, std::size_t width)
      : low_(low), width_(width), step_(std::max<std::size_t>(1, rows * width / kLooksAt)) {}

  void add(std::span<const float> values) {
    while (!values.empty()) {
      const std::size_t left = width_ - row_.size();
      const std::span<const float> part = values.first(std::min(left, values.size()));
      row_.insert(row_.end(), part.begin(), part.end());
      values = values.subspan(part.size());
      if (row_.size() < width_) return;
      if (row_number_++ % step_ == 0) look_at();
      row_.clear();
    }
  }

  // A hundredth of the rows may be what no sample ever trained.
  bool are_learned() const {
    return (has_fraction_ || !is_inexact_) && harmed_rows_ * 100 <= rows_;
  }

 private:
  static constexpr std::size_t kLooksAt = std::size_t{1} << 20;  // numbers of a large table

  void look_at() {
    rounded_ = row_;
    round_in_place(low_, rounded_);
    double sum = 0, sum_of_errors = 0;
    for (std::size_t i = 0; i < width_; ++i) {
      rounded_[i] = row_[i] - rounded_[i];
      sum += row_[i];
      sum_of_errors += rounded_[i];
      has_fraction_ = has_fraction_ || row_[i] != std::floor(row_[i]);
      is_inexact_ = is_inexact_ || rounded_[i] != 0;
    }
    const double mean = sum / static_cast<double>(width_);
    const double mean_error = sum_of_errors / static_cast<double>(width_);
    double squares = 0, spread = 0, errors = 0, spread_of_errors = 0;
    for (std::size_t i = 0; i < width_; ++i) {
      squares += square(row_[i]);
      spread += square(row_[i] - mean);
      errors += square(rounded_[i]);
      spread_of_errors += square(rounded_[i] - mean_error);
    }
    const double most = square(low_ == Element::kFloat16 ? 0x1p-10 : 0x1p-7);
    ++rows_;
    if (errors > most * squares || spread_of_errors > most * spread) ++harmed_rows_;
  }

  static double square(double value) { return value * value; }

  Element low_;
  std::size_t width_, step_;
  std::vector<float> row_, rounded_;
  std::size_t row_number_ = 0, rows_ = 0, harmed_rows_ = 0;
  bool has_fraction_ = false, is_inexact_ = false;
};

class TablesOfWeights {
 public:
  TablesOfWeights(const Graph& graph, const ConvertPolicy& policy, Constants& constants,
                  const SlotMap& map)
      : graph_(graph), policy_(policy), constants_(constants), map_(map) {}

  std::vector<ValueId> run() {
    std::vector<ValueId> tables;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const auto id = static_cast<ValueId>(v);
      if (map_.is_constant[v] && is_table(id)) tables.push_back(id);
    }
    return tables;
  }

 private:
  // The tensor is read last.
  bool is_table(ValueId id) {
    if (!is_worth_a_cast(constants_, id)) return false;
    const Message* tensor = graph_.constant(id);
    if (tensor == nullptr || !may_be_read_low(id)) return false;
    const std::vector<std::int64_t> dims = repeated_integers(*tensor, field::tensor::kDims);
    const bool has_rows =
        std::ranges::count_if(dims, [](std::int64_t dim) { return dim > 1; }) >= 2;
    return has_rows && is_taken_in(id) && is_learned(id, *tensor, dims.back());
  }

  // Is there a reader that gains by it, and that its pin leaves free to read rounded numbers?
  bool may_be_read_low(ValueId id) const {
    const Value& value = graph_.value(id);
    if (!has_cast_to(policy_.low(), graph_.scope(value.scope).opset(""))) return false;
    for (std::size_t u = 0; u < value.uses.size(); ++u) {
      if (reads_rounded_numbers(graph_, map_, id, u)) return true;
    }
    return false;
  }

  // Do products, norms or sums take in what is made of the table, and does nothing on the way show
  // single digits of it?
  bool is_taken_in(ValueId id) const {
    bool is_taken = false;
    bool is_shown = false;
    walk_on(graph_, {id}, {.any_domain = true}, [&](ValueId at, const Use& use, const Node& node) {
      if (!is_float_based(graph_.value(at).type) || reads_no_numbers(node)) return Onward::kStop;
      if (is_product(node.op) && node.domain.empty()) {
        const Pin* pin = pin_of(use.node);
        is_taken = is_taken || (pin != nullptr && pin->label == Label::kLow);
        is_shown = is_shown || (pin != nullptr && !pin->by.empty());
        return Onward::kStop;
      }
      is_taken = is_taken || takes_in(node);
      is_shown = is_shown || shows_digits(node, use.input);
      const bool goes_on = !is_shown && is_between(node.op) && !node.op.ends_with("Softmax");
      return goes_on ? Onward::kAll : Onward::kStop;
    });
    return is_taken && !is_shown;
  }

  const Pin* pin_of(NodeId id) const {
    const std::size_t primary = primary_variable(graph_, map_, id);
    const auto& variables = map_.variables[static_cast<std::size_t>(id)];
    return primary < variables.size() ? map_.slots.pin_of(variables[primary]) : nullptr;
  }

  static bool reads_no_numbers(const Node& node) {
    return node.domain.empty() && (node.op == "Shape" || node.op == "Size");
  }

  static bool is_norm(const Node& node) {
    return node.domain.empty() && node.op.ends_with("Normalization");
  }

  static bool takes_in(const Node& node) {
    return is_norm(node) || (node.domain.empty() && kind_of(node.op) == Kind::kSums);
  }

  // Angles, whole numbers, logarithms, choices; and whatever is not known.
  bool shows_digits(const Node& node, int input) const {
    constexpr std::array<std::string_view, 14> kShows{
        "Ceil",           "Cos",  "Equal", "Floor",       "Greater",
        "GreaterOrEqual", "Less", "Log",   "LessOrEqual", "Mod",
        "Round",          "Sign", "Sin",   "Tan"};
    if (!node.domain.empty() || node.schema == nullptr) return true;
    if (std::ranges::find(kShows, node.op) != kShows.end()) return true;
    const OperatorFacts* facts = find_facts(node.op);
    if (facts != nullptr && facts->decides_by(static_cast<std::size_t>(input))) return true;
    const bool is_float_cast = !node.outputs.empty() && node.outputs[0] != kNone &&
                               is_float_based(graph_.value(node.outputs[0]).type);
    if (node.op == "Cast" || node.op == "CastLike") return !is_float_cast;
    return !is_between(node.op) && !is_norm(node);
  }

  bool is_learned(ValueId id, const Message& message, std::int64_t width) {
    const ConstantFacts& facts = constants_.facts(id);
    if (facts.overflowing + facts.infinite + facts.nan != 0) return false;
    if (facts.largest > kLargestLearned || facts.largest < smallest_normal(policy_.low()))
      return false;
    const Tensor tensor = read_tensor(graph_.document(), message);
    const auto row = static_cast<std::size_t>(width);
    RowsOfTable rows(policy_.low(), tensor.count / row, row);
    for_each_chunk(tensor, [&](std::span<const float> chunk) { rows.add(chunk); });
    graph_.document().release(tensor.raw);
    return rows.are_learned();
  }

  const Graph& graph_;
  const ConvertPolicy& policy_;
  Constants& constants_;
  const SlotMap& map_;
};

}  // namespace

std::vector<ValueId> tables_of_weights(const Graph& graph, const ConvertPolicy& policy,
                                       Constants& constants, const SlotMap& map) {
  return TablesOfWeights(graph, policy, constants, map).run();
}

}  // namespace mezzo::convert
