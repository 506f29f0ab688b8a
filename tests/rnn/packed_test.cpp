// Sequences of different lengths: each runs as it would alone.
#include <gtest/gtest.h>

#include "reference.h"

namespace mezzo::rnn {
namespace {

const std::vector<std::int64_t> kLengths{3, 6, 1, 4, 4};  // in no order

namespace packing = torch::nn::utils::rnn;

struct Sequences {
  at::Tensor padded = torch::randn({6, 5, kFeatures}, at::kDouble);
  PackedSequence packed =
      packing::pack_padded_sequence(padded, torch::tensor(kLengths).cpu(), /*batch_first=*/false,
                                    /*enforce_sorted=*/false);
  at::Tensor alone(std::size_t i) const {
    return padded.slice(0, 0, kLengths[i])
        .slice(1, static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1);
  }
};

AnyRecurrent network(Kind kind, const Options& options) {
  torch::manual_seed(4);
  AnyRecurrent own = AnyRecurrent::make(kind, options);
  own.module->to(at::kDouble);
  return own;
}

Options two_layers(bool bidirectional) {
  return {.input_size = kFeatures,
          .hidden_size = kUnits,
          .num_layers = 2,
          .bidirectional = bidirectional};
}

TEST(RecurrentPacked, EachSequenceRunsAsItWouldAlone) {
  for (const Kind kind : {Kind::kLstm, Kind::kGru, Kind::kTanh, Kind::kMlstm}) {
    for (const bool bidirectional : {false, true}) {
      for (const ForwardOptions how : {ForwardOptions{}, ForwardOptions{.reverse = true},
                                       ForwardOptions{.collect_hidden = true},
                                       ForwardOptions{.collect_hidden = true, .reverse = true}}) {
        const AnyRecurrent own = network(kind, two_layers(bidirectional));
        const Sequences sequences;
        const std::int64_t places = bidirectional ? 4 : 2;
        torch::manual_seed(6);
        const Hidden start = [&] {
          Hidden states;
          const bool two = kind == Kind::kLstm || kind == Kind::kMlstm;
          for (int i = 0; i < (two ? 2 : 1); ++i)
            states.push_back(torch::randn({places, 5, kUnits}, at::kDouble));
          return states;
        }();
        const auto [packed_output, hidden] = own.packed(sequences.packed, start, how);
        const auto [output, lengths] = packing::pad_packed_sequence(packed_output);
        for (std::size_t i = 0; i < kLengths.size(); ++i) {
          const auto b = static_cast<std::int64_t>(i);
          Hidden own_start;
          for (const at::Tensor& each : start) own_start.push_back(each.slice(1, b, b + 1));
          const auto [wanted, states] = own.forward(sequences.alone(i), own_start, how);
          EXPECT_LT(largest_difference(output.slice(0, 0, kLengths[i]).slice(1, b, b + 1), wanted),
                    1e-12);
          for (std::size_t s = 0; s < states.size(); ++s) {
            if (how.collect_hidden) {
              EXPECT_LT(largest_difference(hidden[s].slice(0, 0, kLengths[i]).slice(2, b, b + 1),
                                           states[s]),
                        1e-12);
              EXPECT_EQ(hidden[s].slice(0, kLengths[i]).select(2, b).abs().sum().item<double>(), 0);
            } else {
              EXPECT_LT(largest_difference(hidden[s].slice(1, b, b + 1), states[s]), 1e-12);
            }
          }
        }
      }
    }
  }
}

TEST(RecurrentPacked, GivesTheBitsOfTorch) {
  torch::manual_seed(4);
  torch::nn::LSTM theirs(
      torch::nn::LSTMOptions(kFeatures, kUnits).num_layers(2).bidirectional(true));
  torch::manual_seed(4);
  LSTM own(two_layers(/*bidirectional=*/true));
  theirs->to(at::kDouble);
  own->to(at::kDouble);
  const Sequences sequences;
  const auto [wanted, states] = theirs->forward_with_packed_input(sequences.packed);
  const auto [output, hidden] = own->forward_with_packed_input(sequences.packed);
  EXPECT_TRUE(output.data().equal(wanted.data()));
  EXPECT_TRUE(hidden[0].equal(std::get<0>(states)));
  EXPECT_TRUE(hidden[1].equal(std::get<1>(states)));
}

TEST(RecurrentPacked, GradientsAreThoseOfTheSequencesAlone) {
  const AnyRecurrent own = network(Kind::kMlstm, two_layers(/*bidirectional=*/true));
  const Sequences sequences;
  std::get<0>(own.packed(sequences.packed, {}, {})).data().square().sum().backward();
  std::vector<at::Tensor> got;
  for (const at::Tensor& weight : own.module->parameters()) got.push_back(weight.grad().clone());
  own.module->zero_grad();
  for (std::size_t i = 0; i < kLengths.size(); ++i)
    std::get<0>(own.forward(sequences.alone(i), {}, {})).square().sum().backward();
  const std::vector<at::Tensor> weights = own.module->parameters();
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_LT(largest_difference(got[i], weights[i].grad()), 1e-11);
}

}  // namespace
}  // namespace mezzo::rnn
