#include "convert/prepare/fold_batch_norm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "convert/graph/graph_edits.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/prepare/opset_edit.h"
#include "convert/prepare/scaled_product.h"

namespace mezzo::convert {
namespace {

// A product and the nodes behind it that become part of it: normalizations, and sums with a bias
// before a normalization.
struct Fold {
  Product product;
  Affine affine;
  std::vector<NodeId> parts;
};

// A bias that is added by a node of its own.
struct Sum {
  const Node* node;
  ValueId product, bias;
};

class Folding {
 public:
  explicit Folding(Document& document)
      : document_(document),
        graph_(document),
        constants_(graph_, Element::kFloat16),
        edits_(graph_) {}

  std::vector<BatchNormFold> run() {
    std::string forbidden;
    if (document_.model().find(field::model::kTrainingInfo) != nullptr)
      forbidden = "the model holds what trains it";
    if (graph_.scope(0).message->find(field::graph::kQuantization) != nullptr)
      forbidden = "the model holds notes about its quantization";
    std::unordered_set<const Message*> seen;  // a function is there once per call
    for (const Scope& scope : graph_.scopes) {
      if (!seen.insert(scope.message).second) continue;
      for (const NodeId id : scope.ordered) {
        if (is_batch_norm(graph_.node(id))) whys_[id] = forbidden.empty() ? find(id) : forbidden;
      }
    }
    for (auto& [product, fold] : folds_) fold_into(product, fold);
    std::vector<BatchNormFold> list;
    for (const auto& [id, why] : whys_) {
      const auto into = into_.find(id);
      list.push_back({graph_.describe(graph_.node(id)),
                      into == into_.end() ? "" : graph_.describe(graph_.node(into->second)), why});
    }
    edits_.make();
    return list;
  }

 private:
  static bool is_batch_norm(const Node& node) {
    return node.op == "BatchNormalization" && node.domain.empty();
  }

  // Finds the product before a normalization; why there is none, or an empty text.
  std::string find(NodeId id) {
    const Node& node = graph_.node(id);
    if (std::string why = refusal(node); !why.empty()) return why;
    std::string why;
    const Node* maker = only_maker(node, node.inputs[0], &why);
    if (maker == nullptr) return why;
    const std::optional<Sum> sum = sum_of(*maker);
    if (sum) maker = only_maker(node, sum->product, &why);
    if (maker == nullptr) return why;
    const NodeId before = id_of(*maker);
    const auto behind = product_behind_.find(before);
    const NodeId product = behind == product_behind_.end() ? before : behind->second;
    auto found = folds_.find(product);
    if (found == folds_.end()) {
      const auto known = product_of(graph_, constants_, *maker, &why);
      if (!known) return why;
      found = folds_.emplace(product, Fold{*known, {}, {}}).first;
    }
    Fold& fold = found->second;
    const auto channels = static_cast<std::size_t>(fold.product.layout.channels());
    std::optional<Affine> affine = affine_of(node, channels, &why);
    if (!affine) return why;
    if (sum) {
      const std::optional<Affine> shift = shift_of(*sum, graph_.node(product), channels, &why);
      if (!shift) return why;
      affine = shift->then(*affine);
      fold.parts.push_back(id_of(*sum->node));
    }
    fold.affine = fold.affine.factor.empty() ? *affine : fold.affine.then(*affine);
    fold.parts.push_back(id);
    product_behind_[id] = product;
    return "";
  }

  // The node that makes a value for this reader alone; null, with the reason, if there is none.
  const Node* only_maker(const Node& reader, ValueId id, std::string* why) const {
    const Value& read = graph_.value(id);
    if (read.producer == kNone) {
      *why = "what it reads is made by no node of its graph";
    } else if (graph_.node(read.producer).scope != reader.scope) {
      *why = "what it reads is made outside of its body";
    } else if (read.uses.size() != 1) {
      *why = "others read what it reads, too";
    } else {
      return &graph_.node(read.producer);
    }
    return nullptr;
  }

  NodeId id_of(const Node& node) const { return graph_.value(node.outputs[0]).producer; }

  // A sum of one value and one constant, by the rules of broadcasting (opset 7 and later).
  std::optional<Sum> sum_of(const Node& node) const {
    if (node.op != "Add" || !node.domain.empty() || node.opset < 7 || node.inputs.size() != 2)
      return std::nullopt;
    for (const std::size_t i : {0U, 1U}) {
      if (constants_.is_constant(node.inputs[i]) && !constants_.is_constant(node.inputs[1 - i]))
        return Sum{&node, node.inputs[1 - i], node.inputs[i]};
    }
    return std::nullopt;
  }

  // The sum as a function of each channel: its bias has one number for all, or one for each along
  // the channels' dimension.
  std::optional<Affine> shift_of(const Sum& sum, const Node& product, std::size_t channels,
                                 std::string* why) const {
    const std::vector<float> bias = floats_of(graph_, sum.bias);
    const Message* tensor = graph_.constant(sum.bias);
    std::vector<std::int64_t> dims{static_cast<std::int64_t>(bias.size())};
    if (tensor != nullptr) dims = repeated_integers(*tensor, field::tensor::kDims);
    const bool is_matrix = product.op == "Gemm" || product.op == "MatMul";
    const Message* weights = graph_.constant(product.inputs[1]);
    const std::size_t rank = is_matrix || weights == nullptr
                                 ? 2
                                 : repeated_integers(*weights, field::tensor::kDims).size();
    // Dimensions count from the last: the channels are the second of the result.
    const std::size_t behind = rank - 2;
    bool fits = dims.size() <= rank && (is_matrix || weights != nullptr);
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const bool is_channel = dims.size() - 1 - i == behind;
      fits = fits && (dims[i] == 1 || (is_channel && bias.size() == channels));
    }
    if (!fits) {
      *why = concat({graph_.describe(*sum.node), " adds no number per channel"});
      return std::nullopt;
    }
    Affine affine;
    affine.factor.assign(channels, 1);
    for (std::size_t c = 0; c < channels; ++c)
      affine.shift.push_back(bias[bias.size() == 1 ? 0 : c]);
    return affine;
  }

  // The reason why the normalization itself cannot be folded.
  std::string refusal(const Node& node) const {
    constexpr std::array kParameters{"input", "scale", "bias", "mean", "variance"};
    if (node.inputs.size() != kParameters.size() || node.outputs.empty() ||
        node.outputs[0] == kNone)
      return "its inputs or outputs are not those of the standard";
    for (Field& field : node.message->fields()) {
      if (field.number == field::node::kAttribute &&
          !field.open().text(field::attribute::kReference).empty())
        return "it takes an attribute from its function";
    }
    const bool has_statistics = std::any_of(node.outputs.begin() + 1, node.outputs.end(),
                                            [](ValueId out) { return out != kNone; });
    const bool trains = node.opset < 7 ? graph_.integer(node, "is_test", 0) == 0
                                       : graph_.integer(node, "training_mode", 0) != 0;
    if (has_statistics || trains) return "it trains";
    if (node.opset < 9 && graph_.integer(node, "spatial", 1) == 0) return "it is not spatial";
    for (std::size_t i = 0; i < kParameters.size(); ++i) {
      const ValueId in = node.inputs[i];
      if (in == kNone) return concat({"its ", kParameters[i], " is left out"});
      if (i != 0 && !constants_.is_constant(in))
        return concat(
            {"its ", kParameters[i], " '", graph_.value(in).name, "' is no float32 constant"});
    }
    return "";
  }

  std::optional<Affine> affine_of(const Node& node, std::size_t channels, std::string* why) const {
    constexpr float kDefaultEpsilon = 1e-5F;
    const Message* given = graph_.attribute(node, "epsilon");
    const double epsilon = given == nullptr ? kDefaultEpsilon
                                            : std::bit_cast<float>(static_cast<std::uint32_t>(
                                                  given->number(field::attribute::kFloat)));
    std::array<std::vector<float>, 4> of;
    for (std::size_t i = 0; i < of.size(); ++i) {
      of[i] = floats_of(graph_, node.inputs[i + 1]);
      if (of[i].size() == channels) continue;
      *why = concat({"it has ", std::to_string(of[i].size()), " values for ",
                     std::to_string(channels), " channels"});
      return std::nullopt;
    }
    const auto& [scale, bias, mean, variance] = of;
    Affine affine;
    for (std::size_t c = 0; c < channels; ++c) {
      const double factor = scale[c] / std::sqrt(variance[c] + epsilon);
      affine.factor.push_back(factor);
      affine.shift.push_back(bias[c] - mean[c] * factor);
    }
    return affine;
  }

  void fold_into(NodeId id, const Fold& fold) {
    if (fold.parts.empty()) return;
    const Node& node = graph_.node(id);
    const auto values = scaled(graph_, node, fold.product, fold.affine);
    for (const NodeId part : fold.parts) {
      if (values) {
        into_[part] = id;
      } else if (whys_.contains(part)) {
        whys_[part] =
            concat({"the weights of ", graph_.describe(node), " would leave float32's range"});
      }
    }
    if (!values) return;
    NodeEdit edit(document_, edits_.names(node.scope), *node.message, static_cast<int>(node.opset));
    const Value& made = graph_.value(node.outputs[0]);
    store(node, 1, values->weights, edit);
    if (node.inputs.size() > 2 && node.inputs[2] != kNone) {
      store(node, 2, values->bias, edit);
    } else {
      edit.set_input(
          2, edits_.add_constant(node.scope, concat({made.name, "__bias"}),
                                 {static_cast<std::int64_t>(values->bias.size())}, values->bias));
    }
    if (node.op == "Gemm") edit.remove("beta");
    // A MatMul has no bias.
    if (node.op == "MatMul") edit.set_op("Gemm");
    remove(fold.parts, made, edit);
  }

  // Weights that others also read stay what they are for those.
  void store(const Node& node, std::size_t input, const std::vector<float>& values,
             NodeEdit& edit) {
    const ValueId id = node.inputs[input];
    const Value& value = graph_.value(id);
    const Message* old = graph_.constant(id);
    const std::uint64_t count = constants_.count(id);
    if (value.uses.size() == 1 && count == values.size()) return edits_.replace_values(id, values);
    const auto dims = old == nullptr || count != values.size()
                          ? std::vector{static_cast<std::int64_t>(values.size())}
                          : repeated_integers(*old, field::tensor::kDims);
    edit.set_input(input,
                   edits_.add_constant(node.scope, concat({value.name, "__folded"}), dims, values));
    edits_.release(id);
  }

  // The product makes what the last normalization made.
  void remove(const std::vector<NodeId>& parts, const Value& made, NodeEdit& edit) {
    const Value* last = &made;
    for (const NodeId id : parts) {
      const Node& part = graph_.node(id);
      edits_.remove_node(part);
      edits_.forget(*last);
      for (const ValueId input : part.inputs) {
        if (&graph_.value(input) != last) edits_.release(input);
      }
      last = &graph_.value(part.outputs[0]);
    }
    edit.message().find(field::node::kOutput)->set_bytes(last->name);
  }

  Document& document_;
  Graph graph_;
  Constants constants_;
  GraphEdits edits_;
  std::map<NodeId, Fold> folds_;                       // by product
  std::unordered_map<NodeId, NodeId> product_behind_;  // of normalizations
  std::map<NodeId, std::string> whys_;                 // per normalization: why it stays
  std::unordered_map<NodeId, NodeId> into_;
};

}  // namespace

std::vector<BatchNormFold> fold_batch_norms(Document& document) {
  return Folding(document).run();
}

bool any_folded(const std::vector<BatchNormFold>& norms) {
  return std::ranges::any_of(norms, [](const BatchNormFold& norm) { return !norm.into.empty(); });
}

}  // namespace mezzo::convert
