// Values of tensors, however a file stores them.
#include "convert/onnx/tensor.h"

#include <gmock/gmock.h>

#include <bit>

#include "builder.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

using testing::ElementsAre;

void add_float(Message& tensor, float value) {
  tensor.add(field::tensor::kFloatData, std::uint64_t{std::bit_cast<std::uint32_t>(value)}).wire =
      Wire::kFixed32;
}

Message listed(std::int64_t count) {
  Message tensor;
  tensor.add(field::tensor::kDims, static_cast<std::uint64_t>(count));
  tensor.add(field::tensor::kType, std::uint64_t{1});
  return tensor;
}

TEST(TensorValues, KeepTheirOrderWherePackedAndSingleOnesMix) {
  const std::vector<float> packed{2, 3};
  Message tensor = listed(4);
  add_float(tensor, 1);
  tensor.add(field::tensor::kFloatData,
             kept(std::string(reinterpret_cast<const char*>(packed.data()), 8)));
  add_float(tensor, 4);
  Document document(std::string("\x3A\x00", 2));
  const Tensor read = read_tensor(document, tensor);
  EXPECT_THAT(small_values(read, 8), ElementsAre(1, 2, 3, 4));
  StringSink sink;
  rounded_content(document, read, Element::kFloat16)->write(sink);
  EXPECT_EQ(sink.text, std::string("\x00\x3C\x00\x40\x00\x42\x00\x44", 8));
}

TEST(TensorValues, ThatAreNoFloatsAreRefused) {
  Document document(std::string("\x3A\x00", 2));
  Message varint = listed(1);
  varint.add(field::tensor::kFloatData, std::uint64_t{1});
  EXPECT_THROW(read_tensor(document, varint), Error);
  Message torn = listed(1);
  torn.add(field::tensor::kFloatData, std::string_view("12345"));
  EXPECT_THROW(read_tensor(document, torn), Error);
}

}  // namespace
}  // namespace mezzo::convert
