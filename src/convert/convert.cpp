// Plan, apply, verify, replace: the conversion from file to file.
#include <algorithm>
#include <set>

#include "convert/apply.h"
#include "convert/check.h"
#include "convert/concat.h"
#include "convert/decide.h"
#include "convert/fields.h"
#include "convert/plan.h"
#include "convert/rules.h"
#include "convert/store.h"
#include "core/raise.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

// Everything about one conversion, in the order in which it is made.
class Conversion {
 public:
  Conversion(const fs::path& in, Options options, const Plan* plan)
      : in_(in),
        policy_(prepared(std::move(options))),
        document_(in),
        graph_(document_),
        constants_(graph_, policy_.low()),
        before_(check_graph(graph_)) {
    check_io_names();
    if (plan != nullptr && plan->structure != structure_of(graph_)) {
      raise<ConfigError>("convert", "the plan was made for another graph than '", in.string(), "'");
    }
    decisions_ = decide(graph_, policy_, constants_, nullptr, plan);
  }

  Plan plan() const {
    const Options& options = policy_.options();
    Plan plan;
    plan.target_dtype = options.target_dtype;
    plan.cast_optional_params = options.cast_optional_params;
    plan.weights_only = options.weights_only;
    plan.io = options.io;
    plan.io_of = options.io_of;
    plan.opset = options.opset;
    plan.structure = structure_of(graph_);
    plan.decisions = decisions_.list;
    return plan;
  }

  Result run(const fs::path& out) {
    check_target(document_, out);
    Result result;
    result.plan = plan();
    fill_report(result.report, out);
    const std::int64_t before = bytes_of_input();
    const Changes changes =
        apply(document_, graph_, decisions_, constants_, policy_.low(), storage());
    fill_changes(result.report, changes);
    result.report.unchanged = document_.model().is_clean();
    result.report.bytes_before = before;
    if (result.report.unchanged) {
      result.report.bytes_after = copy_model(document_, out).bytes;
    } else {
      check_result();
      result.report.bytes_after = store_model(document_, out).bytes;
    }
    return result;
  }

 private:
  static Options prepared(Options options) {
    if (options.profile == "ort-cpu") options.weights_only = true;
    return options;
  }

  Storage storage() const {
    if (policy_.options().weights_only) return Storage::kWeightsOnly;
    return policy_.options().cast_optional_params ? Storage::kConverted : Storage::kRuntimeCast;
  }

  void check_io_names() const {
    for (const auto& item : policy_.options().io_of) {
      const std::string& name = item.first;
      const auto is_it = [&](ValueId id) { return graph_.value(id).name == name; };
      if (std::ranges::none_of(graph_.scope(0).inputs, is_it) &&
          std::ranges::none_of(graph_.scope(0).outputs, is_it)) {
        raise<ConfigError>("convert", "io_of names '", name,
                           "', which is no input or output of the model");
      }
    }
  }

  std::int64_t bytes_of_input() {
    std::int64_t bytes = static_cast<std::int64_t>(document_.bytes().size());
    for (const Value& value : graph_.values) {
      if (value.initializer == nullptr || value.origin == Origin::kSparseInitializer) continue;
      if (value.initializer->number(field::tensor::kLocation) != 1) continue;
      bytes += static_cast<std::int64_t>(read_tensor(document_, *value.initializer).raw.size());
    }
    return bytes;
  }

  // The result is checked as if it came from a stranger; what was wrong before may stay wrong.
  void check_result() {
    const Graph after(document_);
    std::multiset<std::string> known;
    for (const Finding& finding : before_) known.insert(finding.what);
    for (const Finding& finding : check_graph(after)) {
      const auto found = known.find(finding.what);
      if (found == known.end()) raise("convert", "the result would not be valid: ", finding.what);
      known.erase(found);
    }
    check_contract(graph_.scope(0).inputs, after.scope(0).inputs, after, "input");
    check_contract(graph_.scope(0).outputs, after.scope(0).outputs, after, "output");
  }

  void check_contract(const std::vector<ValueId>& before, const std::vector<ValueId>& after,
                      const Graph& result, std::string_view what) const {
    for (std::size_t i = 0; i < before.size(); ++i) {
      const Value& old = graph_.value(before[i]);
      if (i >= after.size())
        raise("convert", "the result would lose the ", what, " '", old.name, "'");
      const Value& now = result.value(after[i]);
      const bool is_weight =
          decisions_.map.is_constant[static_cast<std::size_t>(before[i])] && what == "input";
      if (is_weight) continue;
      Type wanted = old.type;
      if (old.type == tensor_of(Element::kFloat) && storage() != Storage::kWeightsOnly &&
          policy_.io_label(std::string(old.name)) == Label::kLow) {
        wanted = tensor_of(policy_.low());
      }
      if (old.name != now.name || (wanted.is_known() && now.type != wanted)) {
        raise("convert", "the result's ", what, " '", old.name, "' would be ", name_of(now.type),
              " instead of ", name_of(wanted));
      }
    }
  }

  void fill_report(Report& report, const fs::path& out) const {
    const Options& options = policy_.options();
    report.input = in_.string();
    report.output = out.string();
    report.target_dtype = options.target_dtype;
    report.profile = options.profile;
    report.opset_before = report.opset_after = graph_.scope(0).opset("");
    report.nodes = static_cast<std::int64_t>(graph_.nodes.size());
    report.decisions = decisions_.list;
    report.warnings = decisions_.warnings;
    for (const Finding& finding : before_) {
      report.warnings.push_back(concat({"the input is not valid: ", finding.what}));
    }
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      count_node(report, static_cast<NodeId>(n));
  }

  void count_node(Report& report, NodeId id) const {
    const auto& variables = decisions_.map.variables[static_cast<std::size_t>(id)];
    const Node& node = graph_.node(id);
    const std::size_t primary = primary_variable(graph_, decisions_.map, id);
    if (node.op == "Constant" || primary >= variables.size() || variables[primary] == kNoSlot)
      return;
    const bool low = decisions_.is_low(variables[primary]);
    const bool heavy =
        node.domain.empty() && default_class(node.op, policy_.low()) == CastClass::kLow;
    ++report.float_nodes;
    report.low_nodes += low ? 1 : 0;
    report.heavy_nodes += heavy ? 1 : 0;
    report.heavy_low_nodes += heavy && low ? 1 : 0;
  }

  static void fill_changes(Report& report, const Changes& changes) {
    report.casts = changes.casts;
    report.weights = changes.weights;
    report.low_weights = changes.low_weights;
    report.duplicated_weights = changes.duplicated_weights;
    report.flushed_values = changes.flushed_values;
    report.infinite_values = changes.infinite_values;
  }

  fs::path in_;
  ConvertPolicy policy_;
  Document document_;
  Graph graph_;
  Constants constants_;
  std::vector<Finding> before_;
  Decisions decisions_;
};

}  // namespace

Result convert_model(const fs::path& in, const fs::path& out, const Options& options) {
  return Conversion(in, options, nullptr).run(out);
}

Plan plan_model(const fs::path& in, const Options& options) {
  return Conversion(in, options, nullptr).plan();
}

Result apply_plan(const fs::path& in, const fs::path& out, const Plan& plan) {
  Options options;
  options.target_dtype = plan.target_dtype;
  options.cast_optional_params = plan.cast_optional_params;
  options.weights_only = plan.weights_only;
  options.io = plan.io;
  options.io_of = plan.io_of;
  options.opset = plan.opset;
  return Conversion(in, options, &plan).run(out);
}

}  // namespace mezzo::convert
