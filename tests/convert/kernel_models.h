// A model of one node for each operator in the table of what ONNX Runtime does not run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "builder.h"
#include "convert/standard/onnxruntime_kernels.h"
#include "convert/standard/schema.h"

namespace mezzo::convert {

struct KernelInput {
  std::string name;  // empty: left out
  Element element = Element::kFloat;
  std::vector<std::int64_t> dims = {};
  std::vector<float> floats = {};
  std::vector<std::int64_t> integers = {};

  Message values() const {
    if (element == Element::kInt64) return tensor(name, element, dims, integers);
    if (element == Element::kUint8)
      return tensor(name, element, dims, std::vector<std::uint8_t>(floats.begin(), floats.end()));
    return mezzo::convert::floats(name, dims, floats);
  }
};

struct KernelCase {
  std::vector<KernelInput> inputs;
  std::vector<std::vector<std::int64_t>> outputs;  // dims
  std::vector<Message> attributes;
};

inline std::vector<float> rising(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25F * static_cast<float>(i) - 1;
  return values;
}

inline KernelCase scattered(const KernelGap& gap) {
  KernelCase made;
  const bool is_nd = gap.op == "ScatterND";
  const std::vector<std::int64_t> places =
      is_nd ? std::vector<std::int64_t>{2, 1} : std::vector<std::int64_t>{2, 3};
  made.inputs = {{"data", Element::kFloat, {3, 3}, rising(9)},
                 {"places", Element::kInt64, places, {}, {0, 2, 1, 1, 0, 2}},
                 {"updates", Element::kFloat, {2, 3}, rising(6)}};
  if (is_nd) made.inputs[1].integers = {2, 0};
  made.outputs = {{3, 3}};
  made.attributes.push_back(attribute("reduction", std::string(gap.value).c_str()));
  return made;
}

inline KernelCase tree() {
  KernelCase made;
  made.inputs = {{"x", Element::kFloat, {2, 1}, {0.25F, 0.75F}}};
  made.outputs = {{2, 1}};
  for (const char* zeros : {"tree_roots", "nodes_featureids", "nodes_truenodeids"})
    made.attributes.push_back(integers_attribute(zeros, {0}));
  for (const char* ones : {"nodes_trueleafs", "nodes_falsenodeids", "nodes_falseleafs"})
    made.attributes.push_back(integers_attribute(ones, {1}));
  made.attributes.push_back(integers_attribute("leaf_targetids", {0, 0}));
  made.attributes.push_back(
      tensor_attribute("nodes_modes", tensor<std::uint8_t>("modes", Element::kUint8, {1}, {0})));
  made.attributes.push_back(tensor_attribute("nodes_splits", floats("splits", {1}, {0.5F})));
  made.attributes.push_back(tensor_attribute("leaf_weights", floats("weights", {2}, {1, 2})));
  made.attributes.push_back(attribute("n_targets", 1));
  return made;
}

/// The node of that row, reading float32. Fails for an operator that nobody wrote one for.
inline KernelCase kernel_case(const KernelGap& gap) {
  KernelCase made;
  const std::vector<std::int64_t> heads{1, 2, 3, 4};
  if (gap.op == "Attention") {
    for (const char* name : {"q", "k", "v"})
      made.inputs.push_back({name, Element::kFloat, heads, rising(24)});
    made.inputs.push_back({"mask", Element::kFloat, {3, 3}, {0, -2, -2, 0, 0, -2, 0, 0, 0}});
    made.outputs = {heads};
    made.attributes.push_back(attribute("is_causal", 1));
  } else if (gap.op == "RMSNormalization") {
    made.inputs = {{"x", Element::kFloat, {2, 4}, rising(8)},
                   {"scale", Element::kFloat, {4}, rising(4)}};
    made.outputs = {{2, 4}};
  } else if (gap.op == "MeanVarianceNormalization") {
    made.inputs = {{"x", Element::kFloat, {2, 2, 3, 3}, rising(36)}};
    made.outputs = {{2, 2, 3, 3}};
  } else if (gap.op == "EyeLike") {
    made.inputs = {{"x", Element::kFloat, {3, 3}, rising(9)}};
    made.outputs = {{3, 3}};
    made.attributes.push_back(attribute("dtype", 1));
  } else if (gap.op == "QuantizeLinear") {
    made.inputs = {{"x", Element::kFloat, {2, 3}, rising(6)},
                   {"step", Element::kFloat, {}, {0.01F}},
                   {"zero", Element::kUint8, {}, {128}}};
    made.outputs = {{2, 3}};
  } else if (gap.op == "Resize") {
    made.inputs = {{"x", Element::kFloat, {1, 1, 4, 4}, rising(16)},
                   {"region", Element::kFloat, {8}, {0, 0, 0.25F, 0.25F, 1, 1, 0.75F, 0.75F}},
                   {""},
                   {"sizes", Element::kInt64, {4}, {}, {1, 1, 3, 3}}};
    made.outputs = {{1, 1, 3, 3}};
    made.attributes.push_back(attribute("coordinate_transformation_mode", "tf_crop_and_resize"));
    made.attributes.push_back(attribute("mode", "linear"));
  } else if (gap.op == "ScatterElements" || gap.op == "ScatterND") {
    made = scattered(gap);
  } else if (gap.op == "ai.onnx.ml::TreeEnsemble") {
    made = tree();
  } else {
    ADD_FAILURE() << "no model of " << gap.op;
  }
  return made;
}

inline std::pair<std::string, std::string> domain_and_name(std::string_view qualified) {
  const std::size_t colons = qualified.find("::");
  if (colons == std::string_view::npos) return {"", std::string(qualified)};
  return {std::string(qualified.substr(0, colons)), std::string(qualified.substr(colons + 2))};
}

/// A model of that node whose type variables of these names are float16, between Casts.
inline Message kernel_model(const KernelGap& gap, const std::set<std::string>& low) {
  const auto [domain, op] = domain_and_name(gap.op);
  const Schema* schema = find_schema(domain, op, gap.since);
  KernelCase made = kernel_case(gap);
  GraphBuilder g;
  std::vector<std::string> read, given;
  const auto is_low = [&](const Formal& formal) {
    return low.contains(schema->variable_of(formal).name);
  };
  for (std::size_t i = 0; i < made.inputs.size(); ++i) {
    const KernelInput& in = made.inputs[i];
    read.push_back(in.name);
    if (in.name.empty()) continue;
    g.input(in.name, in.element, in.dims);
    if (!is_low(*schema->input(i))) continue;
    read.back() += "_low";
    g.node("Cast", {in.name}, {read.back()}, attribute("to", 10));
  }
  for (std::size_t i = 0; i < made.outputs.size(); ++i)
    given.push_back("y" + std::to_string(i) + (is_low(*schema->output(i)) ? "_low" : ""));
  Message node;
  for (const std::string& in : read) node.add(field::node::kInput, kept(in));
  for (const std::string& out : given) node.add(field::node::kOutput, kept(out));
  node.add(field::node::kOpType, kept(op));
  if (!domain.empty()) node.add(field::node::kDomain, kept(domain));
  for (Message& each : made.attributes) {
    const bool says_type = each.text(field::attribute::kName) == "dtype";
    if (says_type && is_low(*schema->output(0))) each = attribute("dtype", 10);
    node.add(field::node::kAttribute, std::make_unique<Message>(std::move(each)));
  }
  g.add(field::graph::kNode, std::move(node));
  for (std::size_t i = 0; i < made.outputs.size(); ++i) {
    const std::string name = "y" + std::to_string(i);
    if (given[i] != name) g.node("Cast", {given[i]}, {name}, attribute("to", 1));
    const Element element = op == "QuantizeLinear" ? Element::kUint8 : Element::kFloat;
    g.output(name, element, made.outputs[i]);
  }
  constexpr int kWithoutOwnOpset = 21, kFirstOpset = 13, kIr = 10;
  Message result =
      model(g.take(), domain.empty() ? std::max(gap.since, kFirstOpset) : kWithoutOwnOpset, kIr);
  if (!domain.empty())
    result.add(field::model::kOpsetImport,
               std::make_unique<Message>(opset_import(gap.since, domain)));
  return result;
}

}  // namespace mezzo::convert
