// Calls that cannot be right are errors that say what was got and what would work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mezzo/error.h"
#include "reference.h"

namespace mezzo::rnn {
namespace {

using ::testing::HasSubstr;

template <typename Run>
std::string message_of(const Run& run) {
  try {
    run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(RecurrentFailures, OptionsThatCannotBe) {
  const Options good{.input_size = 4, .hidden_size = 6};
  const auto message = [&](auto change) {
    Options options = good;
    change(options);
    return message_of([&] { GRU{options}; });
  };
  EXPECT_THAT(message([](Options& o) { o.input_size = 0; }), HasSubstr("input_size is 0"));
  EXPECT_THAT(message([](Options& o) { o.hidden_size = -1; }), HasSubstr("hidden_size -1"));
  EXPECT_THAT(message([](Options& o) { o.num_layers = 0; }), HasSubstr("num_layers 0"));
  EXPECT_THAT(message([](Options& o) { o.dropout = 1.5; }), HasSubstr("dropout 1.5"));
  EXPECT_THAT(message([](Options& o) { o.output_size = 0; }), HasSubstr("output_size 0"));
}

TEST(RecurrentFailures, InputsAndStatesThatDoNotFit) {
  LSTM lstm(Options{.input_size = 4, .hidden_size = 6});
  EXPECT_THAT(message_of([&] {
                lstm(torch::ones({2, 3, 5}));
              }),
              HasSubstr("[2, 3, 5]; expected [length, batch, 4]"));
  EXPECT_THAT(message_of([&] { lstm(torch::ones({0, 3, 4})); }), HasSubstr("at least one step"));
  EXPECT_THAT(message_of([&] { lstm(at::Tensor()); }), HasSubstr("undefined"));
  const at::Tensor x = torch::ones({2, 3, 4});
  const at::Tensor good = torch::zeros({1, 3, 6});
  EXPECT_THAT(message_of([&] { lstm->forward(x, {good}); }), HasSubstr("got 1 states"));
  EXPECT_THAT(message_of([&] {
                lstm->forward(x, {good, good.slice(1, 1)});
              }),
              HasSubstr("state 1 is [1, 2, 6]; expected [layers * directions, batch, size] = "
                        "[1, 3, 6]"));
  EXPECT_THAT(message_of([&] {
                lstm->forward(x, {good, at::Tensor()});
              }),
              HasSubstr("state 1 is undefined"));
  EXPECT_THAT(message_of([&] {
                lstm->forward_with_packed_input(torch::nn::utils::rnn::pack_padded_sequence(
                    torch::ones({2, 3, 5}), torch::tensor({2, 2, 1}).cpu()));
              }),
              HasSubstr("the packed input has the sizes [5, 5]"));
}

TEST(RecurrentFailures, CellsThatCannotBe) {
  const Options options{.input_size = 4, .hidden_size = 6};
  EXPECT_THAT(message_of([&] { Recurrent(options, Cell{}); }), HasSubstr("no step"));
  const auto run = [&](auto step) {
    Recurrent net(options, Cell{.step = step});
    return message_of([&] { net(torch::ones({2, 3, 4})); });
  };
  EXPECT_THAT(run([](const Step&) -> Hidden { return {}; }),
              HasSubstr("returned 0 states; expected 1 of sizes [3, 6]"));
  EXPECT_THAT(run([](const Step& step) -> Hidden { return {step.gates.slice(1, 1)}; }),
              HasSubstr("the first of sizes [3, 5]"));
  Cell cell{.step = [](const Step& step) -> Hidden { return {step.gates}; },
            .extra_weights = [](const LayerSizes&) -> std::vector<ExtraWeight> {
              return {{.name = "weight_mih", .shape = {6, 5}, .multiplies_input = true}};
            }};
  EXPECT_THAT(message_of([&] { Recurrent(options, cell); }), HasSubstr("must be [rows, 4]"));
}

}  // namespace
}  // namespace mezzo::rnn
