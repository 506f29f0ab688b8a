#include "mezzo/safetensors.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "amp/safetensors_header.h"
#include "mezzo/error.h"

namespace mezzo {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct File {
  std::string path =
      (std::filesystem::temp_directory_path() / ("mezzo_safetensors_" + std::to_string(::getpid())))
          .string();
  ~File() { std::filesystem::remove(path); }
};

std::string with_length(const std::string& header, const std::string& data = {}) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + data;
}

TEST(Safetensors, KeepNamesOrderTypesShapesAndValues) {
  const File file;
  torch::OrderedDict<std::string, at::Tensor> tensors;
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kLong, at::kInt,
                          at::kShort, at::kChar, at::kByte, at::kBool, at::kUInt16}) {
    tensors.insert(std::string("of type ") + toString(type),
                   torch::arange(6).reshape({2, 3}).to(type));
  }
  tensors.insert("empty", torch::empty({0, 4}));
  tensors.insert("number", torch::tensor(2.5));
  tensors.insert("transposed \"and\" named\n\u00e9",
                 torch::arange(6).reshape({2, 3}).to(at::kFloat).t());
  save_safetensors(file.path, tensors, {{"format", "pt"}, {"quote", "\"\\\n"}});
  const auto loaded = load_safetensors(file.path);
  EXPECT_EQ(loaded.keys(), tensors.keys());
  for (const auto& item : tensors) {
    EXPECT_EQ(loaded[item.key()].scalar_type(), item.value().scalar_type()) << item.key();
    EXPECT_TRUE(torch::equal(loaded[item.key()], item.value())) << item.key();
  }
  EXPECT_EQ(std::filesystem::file_size(file.path) % 1, 0U);
}

TEST(Safetensors, TheHeaderIsTextPaddedToEightBytes) {
  const std::string text = detail::write_header({{{"key", "value"}}, {{"a", "F32", {2, 1}, 0, 8}}});
  EXPECT_EQ(
      text.substr(0, text.find_last_not_of(' ') + 1),
      R"({"__metadata__":{"key":"value"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})");
  EXPECT_EQ(text.size() % 8, 0U);
  EXPECT_EQ(detail::write_header({}).substr(0, 2), "{}");
}

TEST(Safetensors, WhatCannotBeWrittenIsAnErrorThatNamesItAndLeavesNoFile) {
  const File file;
  torch::OrderedDict<std::string, at::Tensor> tensors;
  tensors.insert("missing", at::Tensor());
  EXPECT_THAT([&] { save_safetensors(file.path, tensors); },
              ThrowsMessage<Error>(HasSubstr("'missing'")));
  tensors.clear();
  tensors.insert("sparse", torch::eye(2).to_sparse());
  EXPECT_THROW(save_safetensors(file.path, tensors), Error);
  EXPECT_FALSE(std::filesystem::exists(file.path));
}

TEST(Safetensors, DamagedFilesAreErrorsThatNameTheFile) {
  const File file;
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string four(4, '\0');
  const std::vector<std::pair<std::string, std::string>> rows{
      {"empty", ""},
      {"only a length", std::string(8, '\1')},
      {"length beyond the end", std::string("\xff\0\0\0\0\0\0\0{}", 10)},
      {"no JSON", with_length("hello   ")},
      {"unclosed", with_length("{" + a)},
      {"text after", with_length("{} x")},
      {"too little data", with_length("{" + a + "}", "abc")},
      {"too much data", with_length("{" + a + "}", "abcde")},
      {"overlap", with_length("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                              "abcdef")},
      {"hole", with_length("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[6,10]}})",
                           four + four + "ab")},
      {"two of a name", with_length("{" + a + "," + a + "}", four)},
      {"unknown type",
       with_length(R"({"a":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}})", four)},
      {"shape does not fit",
       with_length(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", four)},
      {"overflowing shape",
       with_length(R"({"a":{"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,4]}})",
                   four)},
      {"negative shape",
       with_length(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", four)},
      {"unknown field",
       with_length(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":"y"}})", four)},
      {"half a surrogate",
       with_length(R"({"\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four)},
  };
  for (const auto& [name, bytes] : rows) {
    std::ofstream(file.path, std::ios::binary) << bytes;
    EXPECT_THAT([&] { load_safetensors(file.path); }, ThrowsMessage<Error>(HasSubstr(file.path)))
        << name;
  }
  EXPECT_THROW(load_safetensors("/nowhere/at/all"), Error);
}

}  // namespace
}  // namespace mezzo
