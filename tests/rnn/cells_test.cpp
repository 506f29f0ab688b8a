// Layers that LibTorch lacks, against a reference in float64: values and gradients.
#include <gtest/gtest.h>

#include "reference.h"

namespace mezzo::rnn {
namespace {

struct CellCase {
  const char* name;
  Kind kind;
  Options options;
};

std::vector<CellCase> cell_cases() {
  const Options plain{.input_size = kFeatures, .hidden_size = kUnits};
  const auto with = [&](auto change) {
    Options options = plain;
    change(options);
    return options;
  };
  std::vector<CellCase> cases;
  const auto projected = with([](Options& o) { o.output_size = 4; });
  const auto widened = with([](Options& o) { o.output_size = 9; });
  const auto deep = with([](Options& o) {
    o.num_layers = 2;
    o.bidirectional = true;
    o.output_size = 3;
  });
  const auto without_bias = with([](Options& o) {
    o.num_layers = 2;
    o.bias = false;
  });
  for (const auto& [name, kind] : {std::pair{"Lstm", Kind::kLstm},
                                   {"Gru", Kind::kGru},
                                   {"Relu", Kind::kRelu},
                                   {"Tanh", Kind::kTanh},
                                   {"Mlstm", Kind::kMlstm}}) {
    cases.push_back({name, kind, plain});
    cases.push_back({name, kind, projected});
    cases.push_back({name, kind, widened});
    cases.push_back({name, kind, deep});
    cases.push_back({name, kind, without_bias});
  }
  return cases;
}

at::Tensor loss_weights(const at::Tensor& output) {
  torch::manual_seed(3);
  return torch::randn(output.sizes(), output.options());
}

// A change of one weight moves the loss as its gradient says.
void expect_gradients(const CellCase& c, const torch::nn::Module& module, const at::Tensor& x,
                      const at::Tensor& factors) {
  const double step = 1e-5;
  for (const auto& item : module.named_parameters()) {
    Reference reference(c.kind, c.options, module);
    at::Tensor& weight = reference.weights().at(item.key());
    for (const std::int64_t i : {std::int64_t{0}, weight.numel() / 2, weight.numel() - 1}) {
      double& value = weight.data_ptr<double>()[i];
      const double before = value;
      value = before + step;
      const double above = (reference(x) * factors).sum().item<double>();
      value = before - step;
      const double below = (reference(x) * factors).sum().item<double>();
      value = before;
      const double got = item.value().grad().flatten()[i].item<double>();
      EXPECT_NEAR(got, (above - below) / (2 * step), 1e-6) << c.name << ' ' << item.key();
    }
  }
}

TEST(RecurrentCells, AgreeWithAReferenceInFloat64) {
  for (const CellCase& c : cell_cases()) {
    torch::manual_seed(1);
    AnyRecurrent own = AnyRecurrent::make(c.kind, c.options);
    own.module->to(at::kDouble);
    const at::Tensor x = torch::randn({kLength, kBatch, kFeatures}, at::kDouble);
    const auto [output, hidden] = own.forward(x, {}, {});
    const Reference reference(c.kind, c.options, *own.module);
    EXPECT_LT(largest_difference(output, reference(x)), 1e-12) << c.name;
    const at::Tensor factors = loss_weights(output);
    (output * factors).sum().backward();
    expect_gradients(c, *own.module, x, factors);
  }
}

TEST(RecurrentCells, InFloatAgreeToRounding) {
  for (const CellCase& c : cell_cases()) {
    torch::manual_seed(1);
    AnyRecurrent own = AnyRecurrent::make(c.kind, c.options);
    const at::Tensor x = torch::randn({kLength, kBatch, kFeatures});
    const Reference reference(c.kind, c.options, *own.module);
    EXPECT_LT(largest_difference(std::get<0>(own.forward(x, {}, {})), reference(x)), 2e-6)
        << c.name;
  }
}

TEST(RecurrentCells, BatchFirstOnlySwapsTheDimensions) {
  Options options{.input_size = kFeatures, .hidden_size = kUnits, .num_layers = 2};
  torch::manual_seed(1);
  mLSTM by_time(options);
  options.batch_first = true;
  torch::manual_seed(1);
  mLSTM by_batch(options);
  const at::Tensor x = torch::randn({kLength, kBatch, kFeatures});
  const auto [wanted, states] = by_time(x);
  const auto [got, same_states] = by_batch(x.transpose(0, 1));
  EXPECT_TRUE(got.equal(wanted.transpose(0, 1)));
  EXPECT_TRUE(same_states[0].equal(states[0]));
  EXPECT_TRUE(same_states[1].equal(states[1]));
}

TEST(RecurrentCells, DropoutFallsBetweenTheLayersWhileTraining) {
  Options options{.input_size = kFeatures, .hidden_size = kUnits, .num_layers = 2};
  torch::manual_seed(1);
  mLSTM plain(options);
  options.dropout = 0.5;
  torch::manual_seed(1);
  mLSTM dropping(options);
  const at::Tensor x = torch::randn({kLength, kBatch, kFeatures});
  const at::Tensor wanted = std::get<0>(plain(x));
  EXPECT_GT(largest_difference(std::get<0>(dropping(x)), wanted), 1e-3);
  dropping->eval();
  EXPECT_TRUE(std::get<0>(dropping(x)).equal(wanted));
}

// A cell of two states with an extra weight on either side.
Cell leaky_cell() {
  return {
      .gates = 2,
      .states = 2,
      .step = [](const Step& step) -> Hidden {
        const std::vector<at::Tensor> gates =
            (step.gates +
             torch::nn::functional::linear(step.hidden[0], step.weight_hh, step.bias_hh))
                .chunk(2, 1);
        const at::Tensor leak = torch::sigmoid(gates[0] + step.products[0]);
        const at::Tensor next =
            leak * step.hidden[1] + (1 - leak) * torch::tanh(gates[1]) * step.weights[0];
        return {torch::tanh(next), next};
      },
      .extra_weights = [](const LayerSizes& sizes) -> std::vector<ExtraWeight> {
        return {
            {.name = "weight_leak", .shape = {sizes.hidden, sizes.input}, .multiplies_input = true},
            {.name = "scale", .shape = {sizes.hidden}}};
      }};
}

TEST(RecurrentCells, OfOnesOwnHaveTheirWeightsAndStates) {
  torch::manual_seed(2);
  Recurrent net(Options{.input_size = kFeatures, .hidden_size = kUnits, .output_size = 5},
                leaky_cell());
  net->to(at::kDouble);
  auto weights = net->named_parameters();
  EXPECT_EQ(weights["weight_leak_l0"].sizes(), at::IntArrayRef({kUnits, kFeatures}));
  EXPECT_EQ(weights["scale_l0"].sizes(), at::IntArrayRef({kUnits}));
  EXPECT_EQ(weights["weight_hr_l0"].sizes(), at::IntArrayRef({5, kUnits}));
  const at::Tensor x = torch::randn({kLength, kBatch, kFeatures}, at::kDouble);
  const auto [output, hidden] = net(x);

  at::Tensor h = torch::zeros({kBatch, 5}, at::kDouble);
  at::Tensor c = torch::zeros({kBatch, kUnits}, at::kDouble);
  for (std::int64_t t = 0; t < kLength; ++t) {
    const at::Tensor gates = torch::matmul(x[t], weights["weight_ih_l0"].t()) +
                             weights["bias_ih_l0"] + torch::matmul(h, weights["weight_hh_l0"].t()) +
                             weights["bias_hh_l0"];
    const at::Tensor leak = torch::sigmoid(gates.slice(1, 0, kUnits) +
                                           torch::matmul(x[t], weights["weight_leak_l0"].t()));
    c = leak * c + (1 - leak) * torch::tanh(gates.slice(1, kUnits)) * weights["scale_l0"];
    h = torch::matmul(torch::tanh(c), weights["weight_hr_l0"].t());
    EXPECT_LT(largest_difference(output[t], h), 1e-12) << t;
  }
  EXPECT_LT(largest_difference(hidden[0][0], h), 1e-12);
  EXPECT_LT(largest_difference(hidden[1][0], c), 1e-12);
}

}  // namespace
}  // namespace mezzo::rnn
