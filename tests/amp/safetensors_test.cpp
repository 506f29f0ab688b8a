#include "mezzo/safetensors.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <optional>
#include <sstream>

#include "amp/safetensors_header.h"
#include "mezzo/error.h"

namespace mezzo {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct File {
  static inline int count = 0;
  std::string path =
      (std::filesystem::temp_directory_path() /
       ("mezzo_safetensors_" + std::to_string(::getpid()) + "_" + std::to_string(++count)))
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
}

TEST(Safetensors, KeepTheBytesOfTypesWithoutArithmetic) {
  const File file;
  torch::OrderedDict<std::string, at::Tensor> tensors;
  const at::Tensor bytes = torch::arange(16, at::kByte);
  for (const auto type :
       {at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e8m0fnu, at::kFloat8_e4m3fnuz,
        at::kFloat8_e5m2fnuz, at::kUInt32, at::kUInt64, at::kComplexFloat}) {
    tensors.insert(toString(type), bytes.view(type));
  }
  save_safetensors(file.path, tensors);
  const auto loaded = load_safetensors(file.path);
  for (const auto& item : tensors) {
    EXPECT_EQ(loaded[item.key()].scalar_type(), item.value().scalar_type()) << item.key();
    EXPECT_TRUE(torch::equal(loaded[item.key()].view(at::kByte), bytes)) << item.key();
  }
}

TEST(Safetensors, TheHeaderIsTextPaddedToEightBytes) {
  const std::string text =
      amp::detail::write_header({{{"key", "value"}}, {{"a", "F32", {2, 1}, 0, 8}}});
  EXPECT_EQ(
      text.substr(0, text.find_last_not_of(' ') + 1),
      R"({"__metadata__":{"key":"value"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})");
  EXPECT_EQ(text.size() % 8, 0U);
  EXPECT_EQ(amp::detail::write_header({}).substr(0, 2), "{}");
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
  tensors.clear();
  tensors.insert("\xff", torch::ones(1));
  EXPECT_THAT([&] { save_safetensors(file.path, tensors); },
              ThrowsMessage<Error>(HasSubstr("not UTF-8")));
  EXPECT_FALSE(std::filesystem::exists(file.path));
}

TEST(Safetensors, AreWrittenToWhatALinkLeadsTo) {
  const File file;
  const File link;
  std::filesystem::create_symlink(file.path, link.path);
  torch::OrderedDict<std::string, at::Tensor> tensors;
  for (const double value : {1.0, 2.0}) {
    tensors.clear();
    tensors.insert("number", torch::tensor(value));
    save_safetensors(link.path, tensors);
    EXPECT_TRUE(std::filesystem::is_symlink(link.path));
    EXPECT_EQ(load_safetensors(file.path)["number"].item<double>(), value);
  }
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
      {"two of a field",
       with_length(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                   four)},
      {"a fraction of a byte",
       with_length(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4.0]}})", four)},
      {"no object", with_length(R"(["a"])")},
      {"a tensor that is no object", with_length(R"({"a":1})")},
      {"metadata that are no text", with_length(R"({"__metadata__":{"step":1}})")},
      {"text that is not UTF-8",
       with_length("{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", four)},
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

/// Runs a Python program; what it writes. Nothing where there is no Python.
std::optional<std::string> run_python(const std::string& program) {
  const File script;
  const File output;
  std::ofstream(script.path) << program;
  if (std::system("python3 -c '' 2> /dev/null") != 0) return std::nullopt;
  EXPECT_EQ(std::system(("python3 " + script.path + " > " + output.path).c_str()), 0) << program;
  std::ifstream in(output.path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::string hexadecimal(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  const auto* bytes = static_cast<const unsigned char*>(values.const_data_ptr());
  std::ostringstream text;
  for (std::size_t i = 0; i < values.nbytes(); ++i)
    text << std::hex << std::setw(2) << std::setfill('0') << static_cast<int>(bytes[i]);
  return text.str();
}

/// Reads `path` with the safetensors package, else as the format's description says, and with
/// PyTorch too where it is there.
constexpr const char* kReader = R"(
try:
    from safetensors import deserialize
    rows = [(name, entry['dtype'], entry['shape'], bytes(entry['data']))
            for name, entry in deserialize(open(path, 'rb').read())]
except ImportError:
    import json, struct
    data = open(path, 'rb').read()
    begin = 8 + struct.unpack('<Q', data[:8])[0]
    rows = [(name, entry['dtype'], entry['shape'],
             data[begin + entry['data_offsets'][0]:begin + entry['data_offsets'][1]])
            for name, entry in json.loads(data[8:begin]).items() if name != '__metadata__']
for name, dtype, shape, data in sorted(rows):
    print(name, dtype, shape, data.hex())
try:
    import torch
    from safetensors.torch import load_file
except ImportError:
    pass
else:
    loaded = load_file(path)
    for name, dtype, shape, data in rows:
        values = loaded[name].contiguous().view(torch.uint8) if data else loaded[name]
        assert list(loaded[name].shape) == list(shape) and values.numpy().tobytes() == data, name
)";

TEST(Safetensors, PythonReadsWhatWeWrite) {
  const File file;
  torch::OrderedDict<std::string, at::Tensor> tensors;
  tensors.insert("float", torch::randn({2, 3}));
  tensors.insert("half", torch::randn({5}).to(at::kHalf));
  tensors.insert("low", torch::randn({1, 4}).to(at::kBFloat16));
  tensors.insert("long", torch::arange(3));
  tensors.insert("nothing", torch::empty({0, 2}));
  save_safetensors(file.path, tensors, {{"format", "pt"}});
  const auto output = run_python("path = '" + file.path + "'" + kReader);
  if (!output) GTEST_SKIP() << "there is no python3";
  EXPECT_EQ(*output, "float F32 [2, 3] " + hexadecimal(tensors["float"]) + "\nhalf F16 [5] " +
                         hexadecimal(tensors["half"]) + "\nlong I64 [3] " +
                         hexadecimal(tensors["long"]) + "\nlow BF16 [1, 4] " +
                         hexadecimal(tensors["low"]) + "\nnothing F32 [0, 2] \n");
}

/// Writes a file with the safetensors package, else as the format's description says.
constexpr const char* kWriter = R"(
try:
    import numpy
    from safetensors.numpy import save_file
    save_file({'w': numpy.array([1, 2], dtype=numpy.float16)}, path)
except ImportError:
    import json, struct
    header = json.dumps({'__metadata__': {'by': 'hand'},
                         'w': {'dtype': 'F16', 'shape': [2], 'data_offsets': [0, 4]}})
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(header)) + header.encode() + struct.pack('<2e', 1, 2))
)";

TEST(Safetensors, ReadWhatPythonWrites) {
  const File file;
  if (!run_python("path = '" + file.path + "'" + kWriter)) GTEST_SKIP() << "there is no python3";
  const auto loaded = load_safetensors(file.path);
  EXPECT_TRUE(torch::equal(loaded["w"], torch::tensor({1, 2}).to(at::kHalf)));
}

}  // namespace
}  // namespace mezzo
