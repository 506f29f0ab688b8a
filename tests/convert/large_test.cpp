// A model of more than 2 GB is converted in little memory.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>

#include "builder.h"
#include "convert/onnx/array.h"
#include "mezzo/convert.h"
#include "platform/machine.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kRows = 8192;
constexpr std::uint64_t kBytes = kRows * kRows * 4;  // of one weight: 256 MB
constexpr int kWeights = 10;

Message external_weight(const std::string& name, std::uint64_t offset) {
  Message weight;
  for (int i = 0; i < 2; ++i) weight.add(field::tensor::kDims, kRows);
  weight.add(field::tensor::kType, std::uint64_t{1});
  weight.add(field::tensor::kName, kept(name));
  weight.add(field::tensor::kLocation, std::uint64_t{1});
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"location", "weights.bin"},
                                   {"offset", std::to_string(offset)},
                                   {"length", std::to_string(kBytes)}}) {
    auto pair = std::make_unique<Message>();
    pair->add(field::pair::kKey, kept(key));
    pair->add(field::pair::kValue, kept(value));
    weight.add(field::tensor::kExternalData, std::move(pair));
  }
  return weight;
}

TEST(LargeModel, IsConvertedInLittleMemory) {
  const fs::path folder = fs::temp_directory_path() / ("mezzo_large_" + std::to_string(getpid()));
  fs::create_directories(folder);
  if (fs::space(folder).available < kBytes * kWeights * 3 / 2) GTEST_SKIP() << "no space here";
  std::ofstream(folder / "weights.bin").close();
  fs::resize_file(folder / "weights.bin", kWeights * kBytes);
  {
    // One value at the start of every weight says that each went where it belongs.
    std::fstream file(folder / "weights.bin", std::ios::in | std::ios::out | std::ios::binary);
    for (int i = 0; i < kWeights; ++i) {
      const auto value = static_cast<float>(i + 1);
      file.seekp(static_cast<std::streamoff>(kBytes) * i);
      file.write(reinterpret_cast<const char*>(&value), 4);
    }
  }
  GraphBuilder g;
  const auto rows = static_cast<std::int64_t>(kRows);
  g.input("x", Element::kFloat, {1, rows});
  std::string last = "x";
  for (int i = 0; i < kWeights; ++i) {
    const std::string number = std::to_string(i);
    g.initializer(external_weight("w" + number, kBytes * static_cast<std::uint64_t>(i)));
    g.node("MatMul", {last, "w" + number}, {"y" + number});
    last = "y" + number;
  }
  save(folder / "in.onnx", model(g.output(last, Element::kFloat, {1, rows}).take()));
  Options options;
  options.cast_optional_params = true;
  options.verify = "none";
  const std::int64_t before = platform::peak_resident_bytes();
  const Report report = convert_model(folder / "in.onnx", folder / "out.onnx", options).report;
  const std::int64_t peak = platform::peak_resident_bytes();
  std::printf("%.1f GB in, %.1f GB out, peak memory %.0f MB (%.0f MB before)\n",
              static_cast<double>(report.bytes_before) / 1e9,
              static_cast<double>(report.bytes_after) / 1e9, static_cast<double>(peak) / 1e6,
              static_cast<double>(before) / 1e6);
  EXPECT_GT(report.bytes_before, std::int64_t{1} << 31);
  EXPECT_EQ(report.low_weights, kWeights);
  EXPECT_LT(peak, std::int64_t{512} * 1'000'000 + static_cast<std::int64_t>(kBytes));
  std::ifstream data(folder / "out.onnx.data", std::ios::binary);
  for (int i = 0; i < kWeights; ++i) {
    std::uint16_t half = 0;
    data.seekg(static_cast<std::streamoff>(kBytes / 2) * i);
    data.read(reinterpret_cast<char*>(&half), 2);
    Array array{Element::kFloat16, {1}, std::string(reinterpret_cast<const char*>(&half), 2)};
    EXPECT_EQ(array.values().at(0), i + 1) << i;
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace mezzo::convert
