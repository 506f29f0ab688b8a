#include "mezzo/containers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace mezzo::amp {
namespace {

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf;
}

constexpr TensorCast kToHalf{at::kHalf};

at::Tensor x() {
  return torch::ones({2, 3});
}

TEST(CastTensors, CastsAFloatTensor) {
  const at::Tensor half = cast_tensors(x(), kToHalf);
  EXPECT_EQ(half.scalar_type(), at::kHalf);
}

TEST(CastTensors, LeavesIntegersBooleansAndDoubles) {
  for (const at::ScalarType type : {at::kLong, at::kBool, at::kDouble, at::kComplexFloat}) {
    EXPECT_EQ(cast_tensors(x().to(type), kToHalf).scalar_type(), type);
  }
}

TEST(CastTensors, CastsDoublesWhenAsked) {
  const TensorCast all{at::kHalf, true};
  EXPECT_EQ(cast_tensors(x().to(at::kDouble), all).scalar_type(), at::kHalf);
}

TEST(CastTensors, ToUndefinedChangesNothing) {
  const at::Tensor tensor = x();
  const at::Tensor same = cast_tensors(tensor, TensorCast{at::ScalarType::Undefined});
  EXPECT_TRUE(same.is_same(tensor));
}

TEST(CastTensors, LeavesAnUndefinedTensor) {
  EXPECT_FALSE(cast_tensors(at::Tensor(), kToHalf).defined());
}

TEST(CastTensors, RecordsTheCast) {
  const at::Tensor leaf = x().requires_grad_();
  cast_tensors(leaf, kToHalf).sum().backward();
  EXPECT_EQ(leaf.grad().scalar_type(), at::kFloat);
}

TEST(CastTensors, KeepsContainersAndTheirKeys) {
  std::map<std::string, std::vector<std::optional<at::Tensor>>> nested{{"a", {x(), std::nullopt}}};
  const auto cast = cast_tensors(nested, kToHalf);
  static_assert(std::is_same_v<std::remove_const_t<decltype(cast)>, decltype(nested)>);
  EXPECT_EQ(cast.at("a")[0]->scalar_type(), at::kHalf);
  EXPECT_FALSE(cast.at("a")[1].has_value());
  EXPECT_EQ(nested.at("a")[0]->scalar_type(), at::kFloat) << "the caller's value stays as it was";
}

TEST(CastTensors, ReachesTuplesPairsAndArrays) {
  const auto cast = cast_tensors(
      std::make_tuple(x(), 3, std::make_pair(std::string("k"), std::array<at::Tensor, 1>{x()})),
      kToHalf);
  EXPECT_EQ(std::get<0>(cast).scalar_type(), at::kHalf);
  EXPECT_EQ(std::get<1>(cast), 3);
  EXPECT_EQ(std::get<2>(cast).second[0].scalar_type(), at::kHalf);
}

TEST(CastTensors, ReachesAnUnorderedMap) {
  std::unordered_map<int, at::Tensor> values{{1, x()}};
  EXPECT_EQ(cast_tensors(values, kToHalf).at(1).scalar_type(), at::kHalf);
}

TEST(CastTensors, ReachesAnOrderedDict) {
  torch::OrderedDict<std::string, at::Tensor> dict;
  dict.insert("b", x());
  dict.insert("a", x());
  const auto cast = cast_tensors(dict, kToHalf);
  EXPECT_EQ(cast["a"].scalar_type(), at::kHalf);
  EXPECT_EQ(cast.keys(), dict.keys());
}

TEST(CastTensors, ReachesAPackedSequence) {
  const auto packed = torch::nn::utils::rnn::pack_padded_sequence(torch::ones({3, 2, 4}),
                                                                  torch::tensor({3, 2}).cpu());
  const auto cast = cast_tensors(packed, kToHalf);
  EXPECT_EQ(cast.data().scalar_type(), at::kHalf);
  EXPECT_TRUE(torch::equal(cast.batch_sizes(), packed.batch_sizes()));
}

struct Batch {
  at::Tensor data;
  int id;
  Batch to(at::ScalarType type) const { return {data.to(type), id}; }
};

TEST(CastTensors, AsksAUsersTypeToCastItself) {
  const Batch cast = cast_tensors(Batch{x(), 7}, kToHalf);
  EXPECT_EQ(cast.data.scalar_type(), at::kHalf);
  EXPECT_EQ(cast.id, 7);
}

TEST(CastTensors, HandsOnWhatHoldsNoTensorWithoutACopy) {
  const auto owner = std::make_unique<int>(3);
  EXPECT_EQ(&cast_tensors(owner, kToHalf), &owner);
  std::vector<std::int64_t> sizes{1, 2};
  EXPECT_EQ(&cast_tensors(sizes, kToHalf), &sizes);
}

TEST(CastTensors, CastsTheOtherLowTypeAndLeavesWhatHasTheType) {
  EXPECT_TRUE(is_half(cast_tensors(x().to(at::kBFloat16), kToHalf)));
  const at::Tensor half = x().to(at::kHalf);
  EXPECT_TRUE(kToHalf(half).is_same(half));
  EXPECT_TRUE(TensorCast{}(x()).scalar_type() == at::kFloat);
}

TEST(CastTensors, ReachesDequesAndLists) {
  EXPECT_TRUE(is_half(cast_tensors(std::deque<at::Tensor>{x()}, kToHalf)[0]));
  EXPECT_TRUE(is_half(cast_tensors(std::list<at::Tensor>{x()}, kToHalf).front()));
}

TEST(CastTensors, DoesNotTouchKeys) {
  struct ByAddress {
    bool operator()(const at::Tensor& a, const at::Tensor& b) const {
      return a.unsafeGetTensorImpl() < b.unsafeGetTensorImpl();
    }
  };
  const at::Tensor key = x();
  const auto cast = cast_tensors(std::map<at::Tensor, at::Tensor, ByAddress>{{key, x()}}, kToHalf);
  EXPECT_TRUE(cast.begin()->first.is_same(key));
  EXPECT_TRUE(is_half(cast.begin()->second));
}

TEST(CastTensors, LeavesPackedSequencesOfIntegers) {
  const auto indices = torch::nn::utils::rnn::pack_padded_sequence(torch::ones({3, 2}, at::kLong),
                                                                   torch::tensor({3, 1}).cpu());
  EXPECT_EQ(cast_tensors(indices, kToHalf).data().scalar_type(), at::kLong);
}

struct Plain {
  at::Tensor shown = torch::ones({2});
};

class Closed {
 public:
  const at::Tensor& hidden() const { return hidden_; }

 private:
  at::Tensor hidden_ = torch::ones({2});
};

TEST(CastTensors, LeavesWhatItCannotLookInto) {
  EXPECT_TRUE(holds_tensors<std::vector<Batch>>);
  EXPECT_TRUE(holds_tensors<Plain>);
  EXPECT_FALSE(holds_tensors<Closed>);
  EXPECT_FALSE(holds_tensors<std::string>);
  EXPECT_FALSE((holds_tensors<std::tuple<at::Tensor&, int>>));
  EXPECT_FALSE(holds_tensors<at::TensorList>) << "a result would point at nothing";
}

TEST(CastArgument, HandsOnTheCallersObjectWhereNothingIsCast) {
  at::Tensor tensor = x();
  amp::detail::CastArgument<at::Tensor&> same(tensor, TensorCast{});
  EXPECT_EQ(&same.get(), &tensor);
  amp::detail::CastArgument<at::Tensor&> cast(tensor, kToHalf);
  EXPECT_TRUE(is_half(cast.get()));
  EXPECT_EQ(tensor.scalar_type(), at::kFloat);
  const char text[] = "text";
  amp::detail::CastArgument<const char(&)[5]> literal(text, kToHalf);
  EXPECT_EQ(literal.get(), text);
}

TEST(CastArgument, ReachesTensorListsInAnyNesting) {
  using Nested = std::map<std::string, std::vector<std::optional<at::TensorList>>>;
  const std::vector<at::Tensor> owner{x(), x().to(at::kLong)};
  Nested nested{{"a", {at::TensorList(owner), std::nullopt}}};
  amp::detail::CastArgument<Nested&> cast(nested, kToHalf);
  const at::TensorList list = *cast.get().at("a")[0];
  EXPECT_TRUE(is_half(list[0]));
  EXPECT_EQ(list[1].scalar_type(), at::kLong);
  EXPECT_FALSE(cast.get().at("a")[1].has_value());
  EXPECT_EQ(owner[0].scalar_type(), at::kFloat);
  const std::vector<std::tuple<at::TensorList, int>> lists{{owner, 1}, {owner, 2}};
  const c10::ArrayRef<std::tuple<at::TensorList, int>> outer(lists);
  amp::detail::CastArgument<decltype(outer)&> both(outer, kToHalf);
  EXPECT_TRUE(is_half(std::get<0>(both.get()[1])[0]));
  EXPECT_EQ(std::get<1>(both.get()[1]), 2);
}

/// The caller's variable after a function got the cast of it.
template <typename T, typename Change>
void change_cast(T& variable, const Change& change) {
  amp::detail::CastArgument<T&> cast(variable, kToHalf);
  change(cast.get());
}

TEST(CastArgument, GivesBackWhatAFunctionAdded) {
  const at::Tensor first = x();
  const at::Tensor added = x();
  std::vector<at::Tensor> list{first};
  change_cast(list, [&](auto& cast) {
    EXPECT_TRUE(is_half(cast[0]));
    cast.push_back(added);
    cast.insert(cast.begin(), added);
  });
  ASSERT_EQ(list.size(), 3U);
  EXPECT_TRUE(list[0].is_same(added));
  EXPECT_TRUE(list[1].is_same(first)) << "not its cast copy";
  EXPECT_TRUE(list[2].is_same(added));
  change_cast(list, [](auto& cast) { cast.resize(1); });
  EXPECT_EQ(list.size(), 1U);
  std::map<std::string, std::vector<at::Tensor>> named{{"a", {first}}, {"b", {}}};
  change_cast(named, [&](auto& cast) {
    cast["a"].push_back(added);
    cast["c"] = cast["a"];
    cast.erase("b");
  });
  ASSERT_EQ(named.size(), 2U);
  EXPECT_TRUE(named["a"][0].is_same(first));
  EXPECT_TRUE(named["a"][1].is_same(added));
  EXPECT_TRUE(named["c"][0].is_same(first));
  torch::OrderedDict<std::string, at::Tensor> dict({{"a", first}});
  change_cast(dict, [&](auto& cast) { cast.insert("b", added); });
  EXPECT_TRUE(dict["a"].is_same(first));
  EXPECT_TRUE(dict["b"].is_same(added));
}

TEST(CastArgument, GivesBackWhatAFunctionAssigned) {
  const at::Tensor made = x();
  at::Tensor out;
  change_cast(out, [&](at::Tensor& cast) { cast = made; });
  EXPECT_TRUE(out.is_same(made));
  std::optional<at::Tensor> state;
  change_cast(state, [&](auto& cast) { cast = made; });
  EXPECT_TRUE(state->is_same(made));
  change_cast(state, [](auto& cast) { cast.reset(); });
  EXPECT_FALSE(state);
  std::tuple<at::Tensor, int, std::string> several{x(), 1, "a"};
  change_cast(several, [&](auto& cast) { cast = {made, 2, "b"}; });
  EXPECT_TRUE(std::get<0>(several).is_same(made));
  EXPECT_EQ(std::get<1>(several), 2);
  EXPECT_EQ(std::get<2>(several), "b");
  std::unordered_map<int, at::Tensor> map{{1, x()}, {2, x()}};
  const at::Tensor kept = map[1];
  change_cast(map, [&](auto& cast) { cast[2] = made; });
  EXPECT_TRUE(map[1].is_same(kept));
  EXPECT_TRUE(map[2].is_same(made));
}

TEST(CastArgument, LeavesAloneWhatAFunctionLeftAlone) {
  std::vector<std::pair<at::Tensor, std::array<at::Tensor, 2>>> nested{{x(), {x(), x()}}};
  const at::Tensor* const place = &nested[0].second[1];
  const at::Tensor tensor = *place;
  change_cast(nested, [](auto& cast) { EXPECT_TRUE(is_half(cast[0].second[1])); });
  EXPECT_EQ(&nested[0].second[1], place);
  EXPECT_TRUE(place->is_same(tensor));
  std::multimap<int, at::Tensor> many{{1, x()}, {1, x()}, {2, x()}};
  const at::Tensor second = std::next(many.begin())->second;
  change_cast(many, [](auto& cast) { cast.erase(2); });
  EXPECT_EQ(many.size(), 2U);
  EXPECT_TRUE(std::next(many.begin())->second.is_same(second));
}

TEST(CastArgument, GivesBackWhereTheFunctionThrew) {
  std::vector<at::Tensor> list;
  EXPECT_THROW(change_cast(list,
                           [](auto& cast) {
                             cast.push_back(x());
                             throw std::runtime_error("later");
                           }),
               std::runtime_error);
  EXPECT_EQ(list.size(), 1U);
}

TEST(CastArgument, GivesNothingBackToAConstantOrATemporary) {
  const std::vector<at::Tensor> constant{x()};
  {
    amp::detail::CastArgument<const std::vector<at::Tensor>&> cast(constant, kToHalf);
    EXPECT_TRUE(is_half(cast.get()[0]));
  }
  EXPECT_FALSE(is_half(constant[0]));
  std::vector<at::Tensor> moved{x()};
  amp::detail::CastArgument<std::vector<at::Tensor>> cast(std::move(moved), kToHalf);
  const std::vector<at::Tensor> taken = cast.get();
  EXPECT_TRUE(is_half(taken[0]));
}

}  // namespace
}  // namespace mezzo::amp
