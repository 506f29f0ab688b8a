#include "mezzo/cast_values.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace mezzo::detail {
namespace {

const CastRule kToHalf{at::kHalf, false};

at::Tensor ones() {
  return torch::ones({2});
}

/// A batch that casts itself.
struct Batch {
  at::Tensor data = torch::ones({2});
  std::string label = "kept";
  Batch to(at::ScalarType type) const { return {data.to(type), label}; }
};

struct Plain {
  at::Tensor hidden = torch::ones({2});
};

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf;
}

TEST(CastRule, CastsFloatingTensorsButDoublesOnlyWhenAsked) {
  EXPECT_TRUE(is_half(kToHalf.cast(ones())));
  EXPECT_TRUE(is_half(kToHalf.cast(ones().to(at::kBFloat16))));
  EXPECT_EQ(kToHalf.cast(ones().to(at::kDouble)).scalar_type(), at::kDouble);
  EXPECT_TRUE(is_half((CastRule{at::kHalf, true}).cast(ones().to(at::kDouble))));
  for (const auto type : {at::kInt, at::kLong, at::kBool, at::kByte, at::kComplexFloat}) {
    EXPECT_EQ(kToHalf.cast(ones().to(type)).scalar_type(), type);
  }
  EXPECT_FALSE(kToHalf.cast(at::Tensor()).defined());
}

TEST(CastRule, LeavesWhatHasTheTypeAndDoesNothingWhenInactive) {
  const at::Tensor half = ones().to(at::kHalf);
  EXPECT_TRUE(kToHalf.cast(half).is_same(half));
  const at::Tensor floats = ones();
  EXPECT_TRUE(CastRule{}.cast(floats).is_same(floats));
}

TEST(CastRule, IsSeenByAutograd) {
  const at::Tensor leaf = torch::ones({2}, at::TensorOptions().requires_grad(true));
  kToHalf.cast(leaf).sum().backward();
  EXPECT_TRUE(torch::equal(leaf.grad(), ones()));
}

TEST(CastValue, GoesThroughContainersOfAnyNestingAndKeepsTheirTypes) {
  using Nested =
      std::vector<std::map<std::string, std::pair<at::Tensor, std::optional<at::Tensor>>>>;
  const Nested nested{{{"key", {ones(), ones()}}}, {{"other", {ones(), std::nullopt}}}};
  const Nested cast = cast_value(nested, kToHalf);
  EXPECT_TRUE(is_half(cast[0].at("key").first));
  EXPECT_TRUE(is_half(*cast[0].at("key").second));
  EXPECT_TRUE(is_half(cast[1].at("other").first));
  EXPECT_FALSE(cast[1].at("other").second.has_value());

  const auto [tensor, number, text] =
      cast_value(std::tuple(ones(), 3, std::string("kept")), kToHalf);
  EXPECT_TRUE(is_half(tensor));
  EXPECT_EQ(number, 3);
  EXPECT_EQ(text, "kept");

  for (const at::Tensor& element : cast_value(std::array{ones(), ones()}, kToHalf))
    EXPECT_TRUE(is_half(element));
  for (const at::Tensor& element : cast_value(std::deque<at::Tensor>{ones()}, kToHalf))
    EXPECT_TRUE(is_half(element));
  for (const at::Tensor& element : cast_value(std::list<at::Tensor>{ones()}, kToHalf))
    EXPECT_TRUE(is_half(element));
  EXPECT_TRUE(is_half(cast_value(std::unordered_map<int, at::Tensor>{{7, ones()}}, kToHalf).at(7)));
}

TEST(CastValue, KeepsOrderedDictsAndTheirKeys) {
  torch::OrderedDict<std::string, at::Tensor> dict;
  dict.insert("b", ones());
  dict.insert("a", torch::ones({2}, at::kLong));
  const auto cast = cast_value(dict, kToHalf);
  EXPECT_EQ(cast.keys(), (std::vector<std::string>{"b", "a"}));
  EXPECT_TRUE(is_half(cast["b"]));
  EXPECT_EQ(cast["a"].scalar_type(), at::kLong);
}

TEST(CastValue, DoesNotTouchKeys) {
  struct ByAddress {
    bool operator()(const at::Tensor& a, const at::Tensor& b) const {
      return a.unsafeGetTensorImpl() < b.unsafeGetTensorImpl();
    }
  };
  const at::Tensor key = ones();
  const auto cast = cast_value(std::map<at::Tensor, at::Tensor, ByAddress>{{key, ones()}}, kToHalf);
  EXPECT_TRUE(cast.begin()->first.is_same(key));
  EXPECT_TRUE(is_half(cast.begin()->second));
}

TEST(CastValue, CastsPackedSequencesAndLeavesThoseOfIntegers) {
  using torch::nn::utils::rnn::pack_padded_sequence;
  const auto packed = pack_padded_sequence(torch::ones({3, 2, 4}), torch::tensor({3, 1}));
  const auto cast = cast_value(packed, kToHalf);
  EXPECT_TRUE(is_half(cast.data()));
  EXPECT_TRUE(torch::equal(cast.batch_sizes(), packed.batch_sizes()));
  const auto indices = pack_padded_sequence(torch::ones({3, 2}, at::kLong), torch::tensor({3, 1}));
  EXPECT_EQ(cast_value(indices, kToHalf).data().scalar_type(), at::kLong);
}

TEST(CastValue, AsksObjectsThatCastThemselvesAndLeavesOthers) {
  const std::vector<Batch> cast = cast_value(std::vector<Batch>(2), kToHalf);
  EXPECT_TRUE(is_half(cast[1].data));
  EXPECT_EQ(cast[1].label, "kept");
  EXPECT_FALSE(kCastable<Plain>);
  EXPECT_FALSE(kCastable<std::string>);
  EXPECT_FALSE(kCastable<std::vector<std::int64_t>>);
  EXPECT_FALSE((kCastable<std::tuple<at::Tensor&, int>>));
  EXPECT_EQ(cast_value(Plain{}, kToHalf).hidden.scalar_type(), at::kFloat);
}

TEST(CastArgument, HandsOnTheCallersObjectWhereNothingIsCast) {
  at::Tensor tensor = ones();
  CastArgument<at::Tensor&> same(tensor, CastRule{});
  EXPECT_EQ(&same.get(), &tensor);
  CastArgument<at::Tensor&> cast(tensor, kToHalf);
  EXPECT_TRUE(is_half(cast.get()));
  EXPECT_EQ(tensor.scalar_type(), at::kFloat);
  const char text[] = "text";
  CastArgument<const char(&)[5]> literal(text, kToHalf);
  EXPECT_EQ(literal.get(), text);
}

}  // namespace
}  // namespace mezzo::detail
