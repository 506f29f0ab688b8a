// Tensors in structs, pointers, variants and values of TorchScript.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "mezzo/containers.h"

namespace mezzo {
namespace {

constexpr amp::TensorCast kToHalf{at::kHalf, false};

at::Tensor some() {
  return torch::ones({2});
}

struct Pair {
  at::Tensor a, b;
};
struct Boxes {
  at::Tensor values = some();
  std::vector<at::Tensor> levels{some(), some()};
  int count = 3;
  Pair nested{some(), torch::ones({2}, at::kLong)};
  std::optional<at::Tensor> maybe = some();
  std::string name = "boxes";
};
struct Sixteen {
  at::Tensor a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};
struct Seventeen {
  at::Tensor a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q;
};
struct Arrays {
  at::Tensor values[2] = {some(), some()};
  std::array<at::Tensor, 2> more{some(), some()};
  float numbers[3] = {1, 2, 3};
};
struct Tree {
  at::Tensor value;
  std::vector<Tree> children;
};
struct Constant {
  const at::Tensor value = some();
  int number = 1;
};
struct Dictionary {
  torch::OrderedDict<std::string, at::Tensor> features;
  at::Tensor logits;
};
struct WithBase : Pair {
  at::Tensor c;
};
struct Numbers {
  int a = 0;
  float b = 0;
};
struct Own {
  at::Tensor a;
  Own to(at::ScalarType) const { return *this; }
};
class Closed {
 public:
  explicit Closed(at::Tensor value) : value_(std::move(value)) {}

 private:
  at::Tensor value_;
};
struct HoldsClosed {
  std::shared_ptr<Closed> closed;
  at::Tensor value;
};

static_assert(amp::detail::kMembers<Pair> == 2 && amp::detail::kMembers<Boxes> == 6);
static_assert(amp::detail::kMembers<Sixteen> == 16 && amp::detail::kMembers<Seventeen> == 0);
static_assert(amp::detail::kMembers<Arrays> == 3 && amp::detail::kMembers<Dictionary> == 2);
static_assert(amp::detail::kMembers<WithBase> == 0 && amp::detail::kMembers<Closed> == 0);
static_assert(!amp::holds_tensors<Numbers> && amp::holds_tensors<Tree>);

TEST(Structs, MembersAreCastAndTheRestStays) {
  const Boxes cast = amp::cast_tensors(Boxes(), kToHalf);
  EXPECT_EQ(cast.values.scalar_type(), at::kHalf);
  for (const at::Tensor& level : cast.levels) EXPECT_EQ(level.scalar_type(), at::kHalf);
  EXPECT_EQ(cast.count, 3);
  EXPECT_EQ(cast.nested.a.scalar_type(), at::kHalf);
  EXPECT_EQ(cast.nested.b.scalar_type(), at::kLong);
  EXPECT_EQ(cast.maybe->scalar_type(), at::kHalf);
  EXPECT_EQ(cast.name, "boxes");
}

TEST(Structs, SixteenMembersAreReached) {
  Sixteen all;
  all.a = all.p = some();
  const Sixteen cast = amp::cast_tensors(all, kToHalf);
  EXPECT_EQ(cast.a.scalar_type(), at::kHalf);
  EXPECT_EQ(cast.p.scalar_type(), at::kHalf);
  EXPECT_FALSE(cast.h.defined());
}

TEST(Structs, ArraysConstantsTreesAndDictionariesAreReached) {
  const Arrays arrays = amp::cast_tensors(Arrays(), kToHalf);
  EXPECT_EQ(arrays.values[1].scalar_type(), at::kHalf);
  EXPECT_EQ(arrays.more[1].scalar_type(), at::kHalf);
  EXPECT_EQ(arrays.numbers[2], 3);
  EXPECT_EQ(amp::cast_tensors(Constant(), kToHalf).value.scalar_type(), at::kHalf);
  const Tree tree = amp::cast_tensors(Tree{some(), {Tree{some(), {}}}}, kToHalf);
  EXPECT_EQ(tree.value.scalar_type(), at::kHalf);
  EXPECT_EQ(tree.children.at(0).value.scalar_type(), at::kHalf);
  Dictionary dictionary;
  dictionary.features.insert("p2", some());
  dictionary.logits = some();
  const Dictionary cast = amp::cast_tensors(dictionary, kToHalf);
  EXPECT_EQ(cast.features["p2"].scalar_type(), at::kHalf);
  EXPECT_EQ(cast.logits.scalar_type(), at::kHalf);
}

TEST(Structs, PointersAndVariantsInResultsAreReached) {
  const auto shared = amp::cast_tensors(std::make_shared<Pair>(Pair{some(), some()}), kToHalf);
  EXPECT_EQ(shared->b.scalar_type(), at::kHalf);
  const auto unique = amp::cast_tensors(std::make_unique<at::Tensor>(some()), kToHalf);
  EXPECT_EQ(unique->scalar_type(), at::kHalf);
  EXPECT_EQ(amp::cast_tensors(std::shared_ptr<at::Tensor>(), kToHalf), nullptr);
  std::vector<std::unique_ptr<at::Tensor>> list;
  list.push_back(std::make_unique<at::Tensor>(some()));
  EXPECT_EQ(amp::cast_tensors(list, kToHalf).at(0)->scalar_type(), at::kHalf);
  const std::variant<int, at::Tensor> variant = some();
  EXPECT_EQ(std::get<1>(amp::cast_tensors(variant, kToHalf)).scalar_type(), at::kHalf);
  EXPECT_EQ(std::get<0>(amp::cast_tensors(std::variant<int, at::Tensor>(7), kToHalf)), 7);
}

TEST(Structs, ValuesOfTorchScriptAreCastWhole) {
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("loss", some());
  const c10::IValue value = c10::ivalue::Tuple::create(
      {some(), c10::IValue(std::vector<at::Tensor>{some(), torch::ones({1}, at::kLong)}),
       c10::IValue(dict), c10::IValue(3), c10::IValue()});
  const c10::IValue cast = amp::cast_tensors(value, kToHalf);
  const auto& elements = cast.toTupleRef().elements();
  EXPECT_EQ(elements[0].toTensor().scalar_type(), at::kHalf);
  EXPECT_EQ(elements[1].toTensorVector()[0].scalar_type(), at::kHalf);
  EXPECT_EQ(elements[1].toTensorVector()[1].scalar_type(), at::kLong);
  EXPECT_EQ(elements[2].toGenericDict().at("loss").toTensor().scalar_type(), at::kHalf);
  EXPECT_EQ(elements[3].toInt(), 3);
  EXPECT_TRUE(elements[4].isNone());
  EXPECT_EQ(value.toTupleRef().elements()[0].toTensor().scalar_type(), at::kFloat);
}

TEST(Structs, AnArgumentThatIsFilledIsFilledInTheCallersStruct) {
  Boxes boxes;
  const at::Tensor kept = boxes.values;
  const auto fill = [](Boxes& in) {
    EXPECT_EQ(in.values.scalar_type(), at::kHalf);
    in.count = 9;
    in.nested.a = torch::zeros({5});
  };
  {
    amp::detail::CastArgument<Boxes&> argument(boxes, kToHalf);
    fill(argument.get());
  }
  EXPECT_TRUE(boxes.values.is_same(kept));
  EXPECT_EQ(boxes.count, 9);
  EXPECT_EQ(boxes.nested.a.numel(), 5);
}

TEST(Structs, ASharedPointerThatIsAnArgumentStaysTheCallersOwn) {
  auto pair = std::make_shared<Pair>(Pair{some(), some()});
  amp::detail::CastArgument<std::shared_ptr<Pair>&> argument(pair, kToHalf);
  EXPECT_EQ(argument.get(), pair);
}

TEST(Structs, WhatCannotBeReachedIsFound) {
  EXPECT_EQ(amp::detail::unreached_in<Boxes>(), nullptr);
  EXPECT_EQ(amp::detail::unreached_in<Numbers>(), nullptr);
  EXPECT_EQ(amp::detail::unreached_in<Own>(), nullptr);
  EXPECT_EQ((amp::detail::unreached_in<std::map<std::string, std::vector<at::Tensor>>>()), nullptr);
  EXPECT_EQ((amp::detail::unreached_in<std::tuple<at::Tensor, std::string>>()), nullptr);
  EXPECT_EQ(*amp::detail::unreached_in<Closed>(), typeid(Closed));
  EXPECT_EQ(*amp::detail::unreached_in<std::vector<Closed>>(), typeid(Closed));
  EXPECT_EQ(*amp::detail::unreached_in<HoldsClosed>(), typeid(Closed));
  EXPECT_EQ(*amp::detail::unreached_in<Seventeen>(), typeid(Seventeen));
  EXPECT_EQ(*amp::detail::unreached_in<WithBase>(), typeid(WithBase));
}

}  // namespace
}  // namespace mezzo
