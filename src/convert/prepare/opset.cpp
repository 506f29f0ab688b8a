#include "convert/prepare/opset.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/graph/graph.h"
#include "convert/graph/names.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/prepare/opset_changes.h"
#include "convert/prepare/opset_facts.h"
#include "convert/standard/schema.h"

namespace mezzo::convert {
namespace {

// The oldest IR version that may carry an opset.
constexpr std::array<std::pair<int, std::uint64_t>, 10> kIrOfOpset{
    {{9, 4}, {10, 5}, {11, 6}, {12, 7}, {15, 8}, {19, 9}, {21, 10}, {23, 11}, {24, 12}, {25, 13}}};

class Raiser {
 public:
  Raiser(Document& document, int target) : document_(document), target_(target) {}

  std::string run() {
    Message& model = document_.model();
    {
      const Graph graph(document_);
      from_ = static_cast<int>(graph.scope(0).opset(""));
      names_ = std::make_unique<Names>(graph, 0);
      facts_ = std::make_unique<NodeFacts>(graph);
      old_ir_ = graph.ir_version;
    }
    if (from_ == 0) return import_default_domain(model);
    if (target_ < from_)
      return concat({"its opset is ", std::to_string(from_), " already; opsets are not lowered"});
    if (target_ > newest_opset())
      return concat({"opset ", std::to_string(target_), " is unknown; the newest is ",
                     std::to_string(newest_opset())});
    Message& main = model.find(field::model::kGraph)->open();
    std::string why = nodes(main, field::graph::kNode);
    for (Field& field : model.fields()) {
      if (why.empty() && field.number == field::model::kFunctions) why = function(field.open());
    }
    if (!why.empty()) return why;
    set_opset(model, field::model::kOpsetImport);
    raise_ir(model, main);
    return "";
  }

 private:
  // A model that uses other domains alone: nothing in it means something else afterwards.
  std::string import_default_domain(Message& model) {
    auto import = std::make_unique<Message>();
    import->add(field::opset::kDomain, std::string_view());
    import->add(field::opset::kVersion, static_cast<std::uint64_t>(target_));
    model.add(field::model::kOpsetImport, std::move(import));
    raise_ir(model, model.find(field::model::kGraph)->open());
    return "";
  }

  void raise_ir(Message& model, Message& main) {
    std::uint64_t needed = 3;
    for (const auto& [opset, ir] : kIrOfOpset) needed = target_ >= opset ? ir : needed;
    if (static_cast<std::uint64_t>(old_ir_) >= needed) return;
    model.set(field::model::kIrVersion, needed);
    if (old_ir_ >= 4 || needed < 4) return;
    // Up to IR 3 weights had to be listed as inputs; from IR 4 on that would make them replaceable.
    std::unordered_set<std::string> weights;
    for (Field& field : main.fields()) {
      if (field.number == field::graph::kInitializer)
        weights.emplace(field.open().text(field::tensor::kName));
    }
    std::vector<Field> kept;
    for (Field& field : main.fields()) {
      const bool is_weight =
          field.number == field::graph::kInput &&
          weights.contains(std::string(field.open().text(field::value_info::kName)));
      if (!is_weight) kept.push_back(std::move(field));
    }
    main.replace(std::move(kept));
  }

  void set_opset(Message& message, std::uint32_t number) const {
    for (Field& field : message.fields()) {
      if (field.number != number) continue;
      const std::string_view domain = field.open().text(field::opset::kDomain);
      if (domain.empty() || domain == "ai.onnx")
        field.open().set(field::opset::kVersion, static_cast<std::uint64_t>(target_));
    }
  }

  // Runtimes want functions and the model to mean the same by an operator.
  std::string function(Message& message) {
    namespace f = field::function;
    int from = 0;
    for (Field& field : message.fields()) {
      if (field.number != f::kOpsetImport) continue;
      const std::string_view domain = field.open().text(field::opset::kDomain);
      if (domain.empty() || domain == "ai.onnx")
        from = static_cast<int>(field.open().number(field::opset::kVersion));
    }
    if (from == 0 || from >= target_) return "";
    const int model_from = std::exchange(from_, from);
    auto model_names = std::exchange(names_, std::make_unique<Names>(message));
    in_function_ = true;
    std::string why = nodes(message, f::kNode);
    in_function_ = false;
    from_ = model_from;
    names_ = std::move(model_names);
    if (!why.empty()) return concat({"in function '", message.text(f::kName), "': ", why});
    set_opset(message, f::kOpsetImport);
    return "";
  }

  std::string nodes(Message& message, std::uint32_t number) {
    std::vector<Field> fields;
    bool changed = false;
    for (Field& field : message.fields()) {
      if (field.number != number) {
        fields.push_back(std::move(field));
        continue;
      }
      NodeEdit edit(document_, *names_, field.open(), target_, facts_.get());
      if (std::string why = node(edit); !why.empty()) return why;
      changed = changed || !edit.before.empty() || !edit.after.empty();
      for (Message& added : edit.before) fields.push_back(wrapped(number, std::move(added)));
      fields.push_back(std::move(field));
      for (Message& added : edit.after) fields.push_back(wrapped(number, std::move(added)));
    }
    if (changed) {
      message.replace(std::move(fields));
    } else {
      message.fields() = std::move(fields);
    }
    return "";
  }

  static Field wrapped(std::uint32_t number, Message message) {
    Field field;
    field.number = number;
    field.wire = Wire::kBytes;
    field.message = std::make_unique<Message>(std::move(message));
    return field;
  }

  std::string node(NodeEdit& edit) {
    for (Field& field : edit.message().fields()) {
      if (field.number != field::node::kAttribute) continue;
      for (Field& body : field.open().fields()) {
        if (body.number != field::attribute::kGraph && body.number != field::attribute::kGraphs)
          continue;
        if (std::string why = nodes(body.open(), field::graph::kNode); !why.empty()) return why;
      }
    }
    const std::string_view domain = edit.message().text(field::node::kDomain);
    if (!domain.empty() && domain != "ai.onnx") return "";
    for (int at = from_ + 1; at <= target_; ++at) {
      const std::string op(edit.op());
      if (in_function_ && is_changed(op, at) && edit.has_references())
        return concat(
            {op, " takes an attribute from its function (opset ", std::to_string(at), ")"});
      if (const std::string why = adapt(edit, at); !why.empty()) {
        return concat({op, " ", why, " (opset ", std::to_string(at), ")"});
      }
    }
    const Schema* schema = find_schema("", edit.op(), target_);
    if (schema != nullptr && schema->is_deprecated)
      return concat({edit.op(), " does not exist in opset ", std::to_string(target_)});
    return "";
  }

  Document& document_;
  int target_;
  int from_ = 0;
  std::int64_t old_ir_ = 0;
  bool in_function_ = false;
  std::unique_ptr<const NodeFacts> facts_;
  std::unique_ptr<Names> names_;  // of the graph or function at hand
};

}  // namespace

std::string raise_opset(Document& document, int target) {
  return Raiser(document, target).run();
}

}  // namespace mezzo::convert
