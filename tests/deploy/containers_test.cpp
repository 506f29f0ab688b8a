// Every container that C++ and TorchScript share is an argument and a result of `forward`: in a
// trace, and in an initialized model.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <map>
#include <unordered_map>
#include <variant>

#include "deploy/values/collect_tensors.h"
#include "mezzo/amp.h"
#include "mezzo/deploy.h"
#include "mezzo/error.h"

namespace mezzo::deploy {
namespace {

namespace nn = torch::nn;
using at::Tensor;

/// Gives back what it takes, through a layer that has nothing to do with it.
template <typename Container>
struct EchoImpl : nn::Module {
  EchoImpl() { register_module("layer", layer); }
  Container forward(const Container& given) {
    seen = c10::IValue(mezzo::deploy::detail::to_ivalue(given));
    return given;
  }
  nn::Linear layer{nn::Linear(2, 2)};
  c10::IValue seen;
};

/// The tensors in a value, and what is around them: "Dict(str, Tensor)".
std::vector<Tensor> tensors_of(const c10::IValue& value) {
  std::vector<Tensor> tensors;
  collect_tensors(value, &tensors);
  return tensors;
}

void expect_types(const c10::IValue& value, at::ScalarType type) {
  const std::vector<Tensor> tensors = tensors_of(value);
  EXPECT_FALSE(tensors.empty());
  for (const Tensor& tensor : tensors) EXPECT_EQ(tensor.scalar_type(), type);
}

template <typename Container>
void expect_traced(const c10::IValue& example, const std::string& type) {
  const auto net = std::make_shared<EchoImpl<Container>>();
  torch::jit::Module traced = trace(net, std::vector<c10::IValue>{example});
  const c10::IValue result = traced.forward({example});
  EXPECT_EQ(result.type()->str(), type);
  const std::vector<Tensor> wanted = tensors_of(example), got = tensors_of(result);
  ASSERT_EQ(got.size(), wanted.size());
  // An unordered map has an order of its own.
  for (const Tensor& one : wanted) {
    EXPECT_TRUE(std::any_of(got.begin(), got.end(),
                            [&](const Tensor& other) { return torch::equal(other, one); }));
  }
}

/// The network sees half, the caller float.
template <typename Container>
void expect_cast(Container container) {
  const auto net = std::make_shared<EchoImpl<Container>>();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  amp::Options options;
  options.opt_level = "O2";
  options.verbosity = 0;
  auto [model, optimizer] = amp::initialize(net, sgd, options);
  const Container result = model(container);
  expect_types(net->seen, at::kHalf);
  expect_types(mezzo::deploy::detail::to_ivalue(result), at::kFloat);
  expect_types(mezzo::deploy::detail::to_ivalue(container), at::kFloat);
}

template <typename Container>
void expect_both(const Container& container, const c10::IValue& example, const std::string& type) {
  SCOPED_TRACE(c10::demangle(typeid(Container).name()));
  expect_traced<Container>(example, type);
  expect_cast<Container>(container);
}

template <typename Dictionary>
Dictionary filled(const Tensor& a, const Tensor& b) {
  Dictionary dictionary;
  dictionary.insert("a", a);
  dictionary.insert("b", b);
  return dictionary;
}

class Containers : public ::testing::Test {
 protected:
  Tensor x = torch::randn({2, 2}), y = torch::randn({3});
  c10::Dict<std::string, Tensor> dict = filled<c10::Dict<std::string, Tensor>>(x, y);
  c10::List<Tensor> list{x, y};
};

TEST_F(Containers, Dictionaries) {
  const std::string type = "Dict(str, Tensor)";
  expect_both(dict, dict, type);
  expect_both(std::unordered_map<std::string, Tensor>{{"a", x}, {"b", y}}, dict, type);
  expect_both(std::map<std::string, Tensor>{{"a", x}, {"b", y}}, dict, type);
  expect_both(filled<torch::OrderedDict<std::string, Tensor>>(x, y), dict, type);
}

TEST_F(Containers, Sequences) {
  const std::string type = "Tensor[]";
  expect_both(list, list, type);
  expect_both(std::vector<Tensor>{x, y}, list, type);
  expect_both(std::deque<Tensor>{x, y}, list, type);
  expect_both(std::list<Tensor>{x, y}, list, type);
  expect_both(std::array<Tensor, 2>{x, y}, list, type);
  expect_both(std::vector<std::vector<Tensor>>{{x}, {y}},
              c10::IValue(std::vector<std::vector<Tensor>>{{x}, {y}}), "(Tensor[], Tensor[])");
}

struct Two {
  Tensor first, second;
};

TEST_F(Containers, TuplesAndStructs) {
  const c10::IValue pair = std::make_tuple(x, y);
  expect_both(std::pair<Tensor, Tensor>{x, y}, pair, "(Tensor, Tensor)");
  expect_both(std::tuple<Tensor, Tensor>{x, y}, pair, "(Tensor, Tensor)");
  expect_both(Two{x, y}, pair, "(Tensor, Tensor)");
}

TEST_F(Containers, OneValueOrNone) {
  expect_both(std::optional<Tensor>(x), x, "Tensor");
  expect_both(std::variant<std::monostate, Tensor>(x), x, "Tensor");
  expect_both(std::variant<Tensor, std::vector<Tensor>>(std::vector<Tensor>{x, y}), list,
              "Tensor[]");
  expect_both(c10::IValue(dict), dict, "Dict(str, Tensor)");
}

TEST_F(Containers, InOneAnother) {
  using Lists = c10::Dict<std::string, c10::List<Tensor>>;
  Lists lists;
  lists.insert("a", list);
  expect_both(lists, lists, "Dict(str, (Tensor, Tensor))");
  expect_both(std::unordered_map<std::string, std::vector<Tensor>>{{"a", {x, y}}}, lists,
              "Dict(str, (Tensor, Tensor))");
  expect_both(std::vector<std::pair<Tensor, Tensor>>{{x, y}},
              c10::IValue(std::vector<std::tuple<Tensor, Tensor>>{{x, y}}), "((Tensor, Tensor))");
}

/// Numbers as keys are taken, but a trace cannot give them.
struct NumberedImpl : nn::Module {
  Tensor forward(const std::unordered_map<std::int64_t, Tensor>& map) { return map.at(7) * 2; }
};
TORCH_MODULE(Numbered);

TEST_F(Containers, KeysThatAreNumbers) {
  c10::Dict<std::int64_t, Tensor> numbered;
  numbered.insert(7, x);
  Numbered net;
  EXPECT_TRUE(torch::equal(trace(net, {numbered}).forward({numbered}).toTensor(), x * 2));
  const auto echo = std::make_shared<EchoImpl<std::unordered_map<std::int64_t, Tensor>>>();
  EXPECT_THROW(trace(echo, {numbered}), UnsupportedError);
  expect_cast(numbered);
  expect_cast(std::unordered_map<std::int64_t, Tensor>{{7, x}});
}

struct TextImpl : nn::Module {
  Tensor forward(const Tensor& given, std::string_view name, const std::vector<double>& factors) {
    return name == "first" ? given * factors[0] : given * factors[1];
  }
};
TORCH_MODULE(Text);

TEST_F(Containers, TextsAndNumbersBesideTensors) {
  Text net;
  const std::vector<double> factors{2, 3};
  EXPECT_TRUE(torch::equal(trace(net, {x, "second", factors}).forward({x}).toTensor(), x * 3));
}

/// Items that a function adds to a dictionary, or takes away, reach the caller.
struct WritesImpl : nn::Module {
  WritesImpl() { register_module("layer", layer); }
  Tensor forward(c10::Dict<std::string, Tensor>& given, c10::List<Tensor>& more) {
    static_cast<void>(given.erase("a"));
    given.insert("c", layer(given.at("b")));
    more.push_back(given.at("c"));
    return given.at("c");
  }
  nn::Linear layer{nn::Linear(2, 2)};
};
TORCH_MODULE(Writes);

TEST_F(Containers, WritesReachTheCaller) {
  Writes net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  amp::Options options;
  options.opt_level = "O2";
  options.verbosity = 0;
  auto [model, optimizer] = amp::initialize(net, sgd, options);
  c10::Dict<std::string, Tensor> given;
  given.insert("a", y);
  given.insert("b", x);
  c10::List<Tensor> more{x};
  model(given, more);
  EXPECT_EQ(given.size(), 2U);
  EXPECT_TRUE(given.at("b").is_same(x));
  EXPECT_TRUE(given.contains("c"));
  EXPECT_EQ(more.size(), 2U);
  EXPECT_TRUE(Tensor(more.get(0)).is_same(x));
}

TEST_F(Containers, ExamplesOfAnotherKindAreAConfigError) {
  const auto wrong = [&](auto net, const c10::IValue& example) {
    EXPECT_THROW(trace(net, std::vector<c10::IValue>{example}), ConfigError);
  };
  wrong(std::make_shared<EchoImpl<c10::Dict<std::string, Tensor>>>(), list);
  wrong(std::make_shared<EchoImpl<std::unordered_map<std::string, Tensor>>>(), x);
  wrong(std::make_shared<EchoImpl<c10::List<Tensor>>>(), dict);
  wrong(std::make_shared<EchoImpl<std::array<Tensor, 3>>>(), list);
  wrong(std::make_shared<EchoImpl<Two>>(), x);
  wrong(std::make_shared<EchoImpl<std::variant<Tensor, std::vector<Tensor>>>>(), dict);
}

}  // namespace
}  // namespace mezzo::deploy
