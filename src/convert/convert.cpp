// Plan, apply, verify, replace: the conversion from file to file.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "convert/choose_opset.h"
#include "convert/decide/decide.h"
#include "convert/decide/profile.h"
#include "convert/graph/check.h"
#include "convert/judge/sensitivity.h"
#include "convert/judge/verify.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/store.h"
#include "convert/prepare/fold_batch_norm.h"
#include "convert/report/plan.h"
#include "convert/rewrite/apply.h"
#include "convert/rewrite/candidate.h"
#include "convert/standard/low_forms.h"
#include "convert/standard/operator_facts.h"
#include "core/raise.h"
#include "mezzo/convert.h"
#include "platform/files.h"
#include "platform/temporaries.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

// Everything about one conversion, in the order in which it is made.
class Conversion {
 public:
  Conversion(const fs::path& in, Options options, const Plan* plan)
      : in_(in),
        policy_(resolved(std::move(options)),
                plan == nullptr ? std::vector<std::string>() : plan->custom_operators),
        file_(std::make_shared<ModelFile>(in)),
        choice_(choose_opset(file_, policy_, measured_)),
        document_(prepared(file_, {choice_.opset, policy_.options().fold_batch_norm},
                           &report_.batch_norms)),
        graph_(*document_, policy_.custom_operators()),
        constants_(graph_, policy_.low(), &measured_),
        before_(check_graph(graph_)) {
    check_raised();
    check_io_names();
    evidence_.plan = plan;
    if (plan != nullptr && plan->structure != structure_of(graph_)) {
      raise<ConfigError>("convert", "the plan was made for another graph than '", in.string(), "'");
    }
  }

  // Decides, on what was measured if the options ask for that; `target` names the place to work.
  void decide_all(const fs::path& target) {
    verifier_ = std::make_unique<Verifier>(file_, choice_, graph_, policy_, target);
    const std::vector<std::string> notes = verifier_->notes();
    report_.warnings.insert(report_.warnings.end(), notes.begin(), notes.end());
    if (evidence_.plan == nullptr) evidence_.ranges = verifier_->ranges(report_);
    evidence_.kept = verifier_->kept(evidence_, report_);
    decisions_ = decide(graph_, policy_, constants_, evidence_);
  }

  Plan plan() const {
    const Options& options = policy_.options();
    Plan plan;
    plan.target_dtype = options.target_dtype;
    plan.cast_optional_params = options.cast_optional_params;
    plan.weights_only = options.weights_only;
    plan.clamp_weights = options.clamp_weights;
    plan.raise_epsilons = options.raise_epsilons;
    plan.fold_batch_norm = options.fold_batch_norm;
    plan.io = options.io;
    plan.io_of = options.io_of;
    // The opset that "auto" chose: another policy, or another checkpoint, might choose otherwise.
    plan.opset = options.opset != "auto"                 ? options.opset
                 : choice_.opset == 0 || choice_.for_age ? "keep"
                                                         : std::to_string(choice_.opset);
    plan.structure = structure_of(graph_);
    plan.custom_operators = policy_.custom_texts();
    plan.decisions = planned_of(graph_, decisions_);
    plan.float_weights = decisions_.float_weights;
    return plan;
  }

  Result run(const fs::path& out) {
    // Folding leaves fewer tensors that point to a file.
    const auto original = is_folded() ? raised(file_, 0) : nullptr;
    Document& source = original ? *original : *document_;
    check_target(source, out);
    decide_all(out);
    const fs::path tried = verifier_->workshop().file(out.filename().string());
    const Plan made = plan();
    fill_report(out);
    report_.bytes_before = original ? bytes_of(Graph(source)) : bytes_of(graph_);
    const bool external = has_external(source);
    const Changes changes = apply(*document_, graph_, decisions_, constants_, policy_.low(),
                                  storage_of(policy_.options()));
    fill_changes(changes);
    report_.unchanged = is_unchanged(*document_, choice_, is_folded(), decisions_, changes);
    if (report_.unchanged) {
      report_.opset_after = report_.opset_before;
      const auto unraised = choice_.for_age ? raised(file_, 0) : nullptr;
      Document& same = unraised ? *unraised : *document_;
      if (!policy_.options().check.empty()) {
        copy_model(same, tried);
        verifier_->confirm_original(tried, report_);
      }
      report_.bytes_after = copy_model(same, out).bytes;
    } else {
      if (!choice_.cannot.empty()) report_.warnings.push_back(choice_.cannot);
      check_result(changes.renamed);
      const auto& progress = policy_.options().progress;
      report_.bytes_after = store_model(*document_, tried, external, [&](double share) {
                              if (progress) progress("writing", share);
                            }).bytes;
      verifier_->confirm(tried, evidence_, report_);
      platform::replace_with_data(tried, out);
    }
    return {made, std::move(report_)};
  }

 private:
  static Options resolved(Options options) {
    const Profile* profile = find_profile(options.profile);
    if (profile != nullptr && profile->weights_only) options.weights_only = true;
    // Reports and plans name the type as this page does, whatever the caller called it.
    if (const auto low = parse_element(options.target_dtype)) options.target_dtype = name_of(*low);
    return options;
  }

  bool is_folded() const { return any_folded(report_.batch_norms); }

  // Findings name the opset at hand, which is another one after raising.
  static std::string without_opset(std::string what) {
    constexpr std::string_view kWord = "opset ";
    for (std::size_t at = what.find(kWord); at != std::string::npos; at = what.find(kWord, at)) {
      at += kWord.size();
      what.erase(at, what.find_first_not_of("0123456789", at) - at);
    }
    return what;
  }

  // Raising a model adds no fault to it.
  void check_raised() const {
    if (choice_.opset == 0 || before_.empty()) return;
    Document original(file_);
    std::multiset<std::string> known;
    for (const Finding& finding : check_graph(Graph(original, policy_.custom_operators())))
      known.insert(without_opset(finding.what));
    for (const Finding& finding : before_) {
      const auto found = known.find(without_opset(finding.what));
      if (found == known.end()) {
        raise<UnsupportedError>("convert", "the model cannot be raised to opset ", choice_.opset,
                                ": the result would not be valid: ", finding.what);
      }
      known.erase(found);
    }
  }

  void check_io_names() const {
    for (const auto& [name, dtype] : policy_.options().io_of) {
      const auto& names = graph_.scope(0).names;
      const auto found = names.find(name);
      const Value* value = found == names.end() ? nullptr : &graph_.value(found->second);
      const auto is_it = [&](ValueId id) { return &graph_.value(id) == value; };
      if (std::ranges::none_of(graph_.scope(0).inputs, is_it) &&
          std::ranges::none_of(graph_.scope(0).outputs, is_it)) {
        raise<ConfigError>("convert", "io_of names '", name,
                           "', which is no input or output of the model");
      }
      const bool is_as_asked = value->type == tensor_of(*parse_element(dtype));
      if (value->type != tensor_of(Element::kFloat) && !is_as_asked) {
        raise<ConfigError>("convert", "io_of asks for '", name, "' in ", dtype, ", which is ",
                           name_of(value->type), "; only tensor(float32) can change its type");
      }
    }
  }

  std::int64_t opset_of_input() const {
    Document original(file_);
    return Graph(original).scope(0).opset("");
  }

  static std::int64_t bytes_of(const Graph& graph) {
    std::int64_t bytes = static_cast<std::int64_t>(graph.document().bytes().size());
    for (const Value& value : graph.values) {
      if (value.initializer == nullptr || value.origin == Origin::kSparseInitializer) continue;
      if (value.initializer->number(field::tensor::kLocation) != 1) continue;
      bytes +=
          static_cast<std::int64_t>(read_tensor(graph.document(), *value.initializer).raw.size());
    }
    return bytes;
  }

  // The result is checked as if it came from a stranger; what was wrong before may stay wrong.
  void check_result(const OldNames& old_names) {
    const Graph after(*document_, policy_.custom_operators());
    // Told apart by place and kind: types in their texts, and names of functions, are new ones.
    std::multiset<std::string> known;
    for (const Finding& finding : before_) known.insert(finding.key);
    for (const Finding& finding : check_graph(after, old_names)) {
      const auto found = known.find(finding.key);
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
      if (old.type == tensor_of(Element::kFloat) &&
          policy_.io_label(std::string(old.name)) == Label::kLow) {
        wanted = tensor_of(policy_.low());
      }
      if (old.name != now.name || (wanted.is_known() && now.type != wanted)) {
        raise("convert", "the result's ", what, " '", old.name, "' would be ", name_of(now.type),
              " instead of ", name_of(wanted));
      }
    }
  }

  void fill_report(const fs::path& out) {
    Report& report = report_;
    const Options& options = policy_.options();
    report.input = in_.string();
    report.output = out.string();
    report.target_dtype = options.target_dtype;
    report.profile = options.profile;
    report.opset_after = graph_.scope(0).opset("");
    report.opset_before = choice_.opset == 0 ? report.opset_after : opset_of_input();
    report.nodes = static_cast<std::int64_t>(graph_.nodes.size());
    report.decisions = decisions_.list;
    if (evidence_.kept != nullptr)
      tell_cost_of_low(report.local_errors, *evidence_.kept, report.decisions);
    const std::vector<Decision> others = consequences_of(graph_, decisions_);
    report.decisions.insert(report.decisions.end(), others.begin(), others.end());
    warn_of_unknown_operators();
    report.warnings.insert(report.warnings.end(), policy_.warnings().begin(),
                           policy_.warnings().end());
    report.warnings.insert(report.warnings.end(), decisions_.warnings.begin(),
                           decisions_.warnings.end());
    for (const Finding& finding : before_) {
      report.warnings.push_back(concat({"the input is not valid: ", finding.what}));
    }
    const std::int64_t opset = graph_.scope(0).opset("");
    if (!has_cast_to(policy_.low(), opset)) {
      report.warnings.push_back(without_cast_to(policy_.low(), opset, "everything stays as it is"));
    }
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) count_node(static_cast<NodeId>(n));
    if (options.opset != "keep" || options.weights_only || evidence_.plan != nullptr) return;
    std::optional<Decisions> unmeasured;
    if (evidence_.ranges != nullptr || evidence_.kept != nullptr)
      unmeasured = decide(graph_, policy_, constants_);
    const OpsetGain gain =
        gain_of_raising(file_, policy_, measured_, graph_, unmeasured ? *unmeasured : decisions_);
    report.better_opset = gain.opset;
    report.low_in_better_opset = static_cast<std::int64_t>(gain.more);
  }

  // Operators that nothing describes may make a model's heart stay float32.
  void warn_of_unknown_operators() {
    std::map<std::string_view, std::size_t> counts;
    for (const Node& node : graph_.nodes) {
      if (node.schema == nullptr && node.instance == kNone && !node.domain.empty())
        ++counts[node.domain];
    }
    for (const auto& [domain, count] : counts) {
      report_.warnings.push_back(
          concat({std::to_string(count), count == 1 ? " node" : " nodes", " of domain ", domain,
                  ": described by nothing, so float32 stays around them; ",
                  "Options::custom_operators describes operators"}));
    }
  }

  void count_node(NodeId id) {
    const auto& variables = decisions_.map.variables[static_cast<std::size_t>(id)];
    const Node& node = graph_.node(id);
    const std::size_t primary = primary_variable(graph_, decisions_.map, id);
    if (node.op == "Constant" || primary >= variables.size() || variables[primary] == kNoSlot)
      return;
    const bool low = decisions_.is_low(variables[primary]);
    const bool heavy =
        node.is_described() && policy_.default_class_of(node.qualified_name()) == CastClass::kLow;
    ++report_.float_nodes;
    report_.low_nodes += low ? 1 : 0;
    report_.heavy_nodes += heavy ? 1 : 0;
    report_.heavy_low_nodes += heavy && low ? 1 : 0;
  }

  void fill_changes(const Changes& changes) {
    report_.casts = changes.casts;
    report_.weights = changes.weights;
    report_.low_weights = changes.low_weights;
    report_.duplicated_weights = changes.duplicated_weights;
    report_.flushed_values = changes.flushed_values;
    report_.infinite_values = changes.infinite_values;
    report_.adjusted = changes.adjusted;
  }

  fs::path in_;
  Report report_;
  ConvertPolicy policy_;
  MeasuredFacts measured_;
  std::shared_ptr<ModelFile> file_;  // what the model is read from, again and again
  OpsetChoice choice_;
  std::unique_ptr<Document> document_;
  Graph graph_;
  Constants constants_;
  std::vector<Finding> before_;
  Evidence evidence_;
  std::unique_ptr<Verifier> verifier_;
  Decisions decisions_;
};

}  // namespace

namespace {

// Where a plan is made without a model beside it: a folder that nobody else reads or writes.
std::unique_ptr<const platform::Temporary> private_folder() {
  constexpr int kMostTries = 1000;
  std::error_code failure;
  const fs::path parent = fs::temp_directory_path(failure);
  std::random_device random;
  for (int i = 0; i < kMostTries && !failure; ++i) {
    const fs::path path = parent / concat({"mezzo-plan-", std::to_string(random())});
    auto folder = platform::Temporary::new_folder(path, failure);
    if (!folder) continue;
    fs::permissions(path, fs::perms::owner_all, failure);
    if (!failure) return folder;
  }
  raise("convert", "cannot make a folder for what a plan needs in '", parent.string(),
        "': ", failure.message());
}

}  // namespace

Result convert_model(const fs::path& in, const fs::path& out, const Options& options) {
  return Conversion(in, options, nullptr).run(out);
}

Plan plan_model(const fs::path& in, const Options& options) {
  Conversion conversion(in, options, nullptr);
  const bool needs_files = options.tolerance || !options.calibration.empty() ||
                           !options.check.empty() || options.verify == "run" ||
                           options.verify == "compare";
  const auto folder = needs_files ? private_folder() : nullptr;
  // Commands may go by the extension.
  conversion.decide_all(folder ? folder->path() / "plan.onnx" : fs::path("plan.onnx"));
  return conversion.plan();
}

Result apply_plan(const fs::path& in, const fs::path& out, const Plan& plan, const Judges& judges) {
  Options options;
  options.target_dtype = plan.target_dtype;
  options.cast_optional_params = plan.cast_optional_params;
  options.weights_only = plan.weights_only;
  options.clamp_weights = plan.clamp_weights;
  options.raise_epsilons = plan.raise_epsilons;
  options.fold_batch_norm = plan.fold_batch_norm;
  options.io = plan.io;
  options.io_of = plan.io_of;
  options.opset = plan.opset;
  options.verify = judges.verify;
  options.calibration = judges.calibration;
  options.tolerance = judges.tolerance;
  options.check = judges.check;
  options.evaluator = judges.evaluator;
  options.onnxruntime = judges.onnxruntime;
  options.progress = judges.progress;
  return Conversion(in, options, &plan).run(out);
}

}  // namespace mezzo::convert
