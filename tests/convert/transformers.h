// Small transformers whose weights are mostly tables, as exporters write them: layer norms in
// pieces until opset 16, as an operator from 17 on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "builder.h"
#include "networks.h"

namespace mezzo::convert {

class TransformerBuilder {
 public:
  static constexpr std::int64_t kWidth = 64;
  static constexpr std::int64_t kLength = 24;

  TransformerBuilder(const std::string& name, int opset) : graph_(name), n(graph_), opset_(opset) {}

  std::string ids(const std::string& name) {
    graph_.input(name, Element::kInt64, {1, kLength});
    return name;
  }
  /// Rows of a table, by what the caller gives.
  std::string rows(const std::string& name, std::int64_t count, const std::string& ids,
                   std::int64_t width = kWidth) {
    return n.add("Gather", name, {n.weight(name + ".weight", {count, width}), ids});
  }
  /// The first rows of a table.
  std::string positions(const std::string& name, std::int64_t count, std::int64_t width = kWidth) {
    const std::string table = n.weight(name + ".weight", {count, width});
    return n.add("Slice", name,
                 {table, n.integers(name + ".from", {0}), n.integers(name + ".to", {kLength}),
                  n.integers(name + ".axis", {0})});
  }
  std::string add(const std::string& name, const std::string& a, const std::string& b) {
    return n.add("Add", name, {a, b});
  }
  std::string norm(const std::string& name, const std::string& x, std::int64_t width = kWidth) {
    if (opset_ < 17) return n.layer_norm(name, x, width);
    return n.add(
        "LayerNormalization", name,
        {x, n.constant(name + ".weight", {width}, 1), n.constant(name + ".bias", {width}, 0.01F)});
  }
  /// A norm without a mean: x / sqrt(mean(x x) + epsilon).
  std::string root_norm(const std::string& name, const std::string& x) {
    const std::string square =
        n.add("Pow", name + ".square", {x, n.constant(name + ".two", {}, 2)});
    const std::string mean =
        n.add("ReduceMean", name + ".mean", {square}, NetworkBuilder::list("axes", {-1}));
    const std::string safe =
        n.add("Add", name + ".safe", {mean, n.constant(name + ".eps", {}, 1e-6F)});
    const std::string scaled =
        n.add("Div", name + ".div", {x, n.add("Sqrt", name + ".root", {safe})});
    return n.add("Mul", name + ".scale", {scaled, n.constant(name + ".weight", {kWidth}, 1)});
  }
  /// Attention over what the queries see; `bias`, where there is one, is added to the scores.
  std::string attention(const std::string& name, const std::string& x,
                        const std::string& bias = "") {
    constexpr std::int64_t kHeads = 4;
    const std::string shape = n.integers(name + ".heads", {0, 0, kHeads, kWidth / kHeads});
    const auto heads = [&](const std::string& part, const std::vector<std::int64_t>& order) {
      const std::string split =
          n.add("Reshape", part + ".split", {n.linear(part, x, kWidth, kWidth), shape});
      return n.add("Transpose", part + ".swap", {split}, NetworkBuilder::list("perm", order));
    };
    std::string scores =
        n.add("MatMul", name + ".scores",
              {heads(name + ".q", {0, 2, 1, 3}), heads(name + ".k", {0, 2, 3, 1})});
    scores = n.add("Mul", name + ".scaled", {scores, n.constant(name + ".by", {}, 0.25F)});
    if (!bias.empty()) scores = add(name + ".biased", scores, bias);
    scores = n.add("Softmax", name + ".prob", {scores});
    std::string y = n.add("MatMul", name + ".context", {scores, heads(name + ".v", {0, 2, 1, 3})});
    y = n.add("Transpose", name + ".back", {y}, NetworkBuilder::list("perm", {0, 2, 1, 3}));
    y = n.add("Reshape", name + ".joined", {y, n.integers(name + ".shape", {0, 0, kWidth})});
    return n.linear(name + ".out", y, kWidth, kWidth);
  }
  std::string feed_forward(const std::string& name, const std::string& x) {
    const std::string up = n.add("Relu", name + ".relu", {n.linear(name + ".up", x, kWidth, 128)});
    return n.linear(name + ".down", up, 128, kWidth);
  }
  /// A layer that is normalised behind its sums, and one that is before them.
  std::string layer_then_norm(const std::string& name, std::string x) {
    x = norm(name + ".norm1", add(name + ".add1", x, attention(name + ".self", x)));
    return norm(name + ".norm2", add(name + ".add2", x, feed_forward(name, x)));
  }
  using Norm = std::function<std::string(const std::string&, const std::string&)>;
  std::string norm_then_layer(const std::string& name, std::string x, const Norm& norm,
                              const std::string& bias = "") {
    x = add(name + ".add1", x, attention(name + ".self", norm(name + ".norm1", x), bias));
    return add(name + ".add2", x, feed_forward(name, norm(name + ".norm2", x)));
  }
  /// Scores of all words, by the table that the words came from.
  std::string tied_head(const std::string& x, const std::string& table) {
    const std::string turned =
        n.add("Transpose", "head.turned", {table}, NetworkBuilder::list("perm", {1, 0}));
    return n.add("MatMul", "head", {x, turned});
  }

  Message done(const std::string& out, std::vector<std::int64_t> dims) {
    return model(graph_.output(out, Element::kFloat, std::move(dims)).take(), opset_);
  }

 private:
  GraphBuilder graph_;

 public:
  NetworkBuilder n;

 private:
  int opset_;
};

inline Message bert_like(int opset) {
  TransformerBuilder b("bert", opset);
  const std::string words = b.rows("word", 2500, b.ids("tokens"));
  const std::string kinds = b.rows("kind", 2, b.ids("kinds"));
  std::string x = b.add("both", words, kinds);
  x = b.norm("norm", b.add("embedded", x, b.positions("position", 512)));
  x = b.layer_then_norm("layer", x);
  return b.done(b.n.linear("head", x, 64, 8), {1, 24, 8});
}

inline Message gpt_like(int opset) {
  TransformerBuilder b("gpt", opset);
  const std::string words = b.rows("word", 3000, b.ids("tokens"));
  const TransformerBuilder::Norm norm = [&](const std::string& name, const std::string& x) {
    return b.norm(name, x);
  };
  std::string x = b.add("embedded", words, b.positions("position", 512));
  x = b.norm("norm", b.norm_then_layer("layer", x, norm));
  return b.done(b.tied_head(x, "word.weight"), {1, 24, 3000});
}

/// Relative positions, and a norm without a mean right behind the table.
inline Message t5_like(int opset) {
  TransformerBuilder b("t5", opset);
  const std::string words = b.rows("word", 3000, b.ids("tokens"));
  const TransformerBuilder::Norm norm = [&](const std::string& name, const std::string& x) {
    return b.root_norm(name, x);
  };
  std::vector<std::int64_t> buckets;
  for (std::int64_t q = 0; q < 24; ++q) {
    for (std::int64_t k = 0; k < 24; ++k)
      buckets.push_back(std::min<std::int64_t>(31, q > k ? q - k : k));
  }
  std::string bias = b.n.add(
      "Gather", "bias", {b.n.weight("bias.weight", {32, 4}), b.n.integers("buckets", buckets)});
  bias = b.n.add("Reshape", "square", {bias, b.n.integers("square.shape", {1, 24, 24, 4})});
  bias = b.n.add("Transpose", "bias.turned", {bias}, NetworkBuilder::list("perm", {0, 3, 1, 2}));
  std::string x = b.root_norm("norm", b.norm_then_layer("layer", words, norm, bias));
  x = b.n.add("Mul", "smaller", {x, b.n.constant("by", {}, 0.125F)});
  return b.done(b.tied_head(x, "word.weight"), {1, 24, 3000});
}

/// Narrow tables before a product that widens them; one layer, used twice.
inline Message albert_like(int opset) {
  TransformerBuilder b("albert", opset);
  std::string x = b.add("both", b.rows("word", 6000, b.ids("tokens"), 32),
                        b.rows("kind", 2, b.ids("kinds"), 32));
  x = b.norm("norm", b.add("embedded", x, b.positions("position", 512, 32)), 32);
  x = b.layer_then_norm("layer", b.n.linear("wider", x, 32, 64));
  return b.done(b.n.linear("head", x, 64, 8), {1, 24, 8});
}

/// Positions that the exporter has computed: a constant that is added.
inline Message with_folded_positions(int opset) {
  TransformerBuilder b("folded", opset);
  const std::string words = b.rows("word", 2500, b.ids("tokens"));
  std::string x = b.add("both", words, b.rows("kind", 16, b.ids("kinds")));
  x = b.norm("norm", b.add("embedded", x, b.n.weight("position.weight", {1, 24, 64})));
  x = b.layer_then_norm("layer", x);
  return b.done(b.n.linear("head", x, 64, 8), {1, 24, 8});
}

/// Two encoders of rows that a norm reads as they are, and the products of both.
inline Message two_towers(int opset) {
  TransformerBuilder b("towers", opset);
  const auto tower = [&](const std::string& name) {
    const std::string x = b.norm(name + ".norm", b.rows(name, 2500, b.ids(name + ".ids")));
    const std::string mean = b.n.add("ReduceMean", name + ".mean", {b.feed_forward(name, x)},
                                     NetworkBuilder::list("axes", {1}));
    return b.n.linear(name + ".out", mean, 64, 32);
  };
  const std::string one = tower("user");
  return b.done(b.n.add("Mul", "product", {one, tower("item")}), {1, 1, 32});
}

struct Transformer {
  std::string name;
  Message (*make)(int opset);
  std::vector<std::string> inputs;  // of integers, [1, 24]
  std::vector<std::string> tables;
};

inline const std::vector<Transformer>& transformers() {
  static const std::vector<Transformer> kAll{
      {"BERT", bert_like, {"tokens", "kinds"}, {"word.weight", "position.weight"}},
      {"GPT", gpt_like, {"tokens"}, {"word.weight", "position.weight"}},
      {"T5", t5_like, {"tokens"}, {"word.weight"}},
      {"ALBERT", albert_like, {"tokens", "kinds"}, {"word.weight", "position.weight"}},
      {"folded positions",
       with_folded_positions,
       {"tokens", "kinds"},
       {"word.weight", "position.weight", "kind.weight"}},
      {"two towers", two_towers, {"user.ids", "item.ids"}, {"user.weight", "item.weight"}},
  };
  return kAll;
}

/// Numbers of rows: all of them are in every table.
inline Message row_numbers(const std::string& name, std::int64_t below) {
  std::vector<std::int64_t> values(24);
  for (std::size_t i = 0; i < 24; ++i) values[i] = static_cast<std::int64_t>(7 * i + 1) % below;
  return tensor(name, Element::kInt64, {1, 24}, values);
}

}  // namespace mezzo::convert
