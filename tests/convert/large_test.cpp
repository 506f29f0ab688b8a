// Models with gigabytes of weights, or with millions of numbers in attributes, are converted in
// little memory.
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

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7U) bytes += static_cast<char>((value & 127U) | 128U);
  return bytes + static_cast<char>(value);
}

std::string bytes_field(std::uint32_t number, const std::string& bytes) {
  return varint(number << 3U | 2U) + varint(bytes.size()) + bytes;
}

// An attribute that has one entry many times.
struct LongAttribute {
  std::string name, entry;
  std::uint64_t type;

  std::string head() const { return bytes_field(field::attribute::kName, name); }
  std::string tail() const { return varint(field::attribute::kType << 3U) + varint(type); }
  std::uint64_t size(std::uint64_t count) const {
    return head().size() + count * entry.size() + tail().size();
  }
};

// Written piece by piece: neither this test nor the converter has the whole of it in memory.
void write_trees(const fs::path& path, std::uint64_t count) {
  const std::string integer = varint(field::attribute::kInts << 3U) + varint(5);
  const std::string number = varint(field::attribute::kFloats << 3U | 5U) + std::string(4, '\x3e');
  std::vector<LongAttribute> attributes;
  for (const char* name : {"nodes_nodeids", "nodes_treeids", "nodes_featureids",
                           "nodes_truenodeids", "nodes_falsenodeids", "class_nodeids"})
    attributes.push_back({name, integer, 7});
  for (const char* name : {"nodes_values", "class_weights"})
    attributes.push_back({name, number, 6});
  attributes.push_back({"nodes_modes", bytes_field(field::attribute::kStrings, "BRANCH_LEQ"), 8});
  const std::string node = bytes_field(field::node::kInput, "x") +
                           bytes_field(field::node::kOutput, "label") +
                           bytes_field(field::node::kOutput, "y") +
                           bytes_field(field::node::kOpType, "TreeEnsembleClassifier") +
                           bytes_field(field::node::kDomain, "ai.onnx.ml");
  const auto begin_of = [](std::uint32_t tag, std::uint64_t size) {
    return varint(tag << 3U | 2U) + varint(size);
  };
  std::uint64_t node_size = node.size();
  for (const LongAttribute& each : attributes) {
    const std::uint64_t size = each.size(count);
    node_size += begin_of(field::node::kAttribute, size).size() + size;
  }
  GraphBuilder g;
  g.input("x", Element::kFloat, {4, 8}).output("label", Element::kInt64, {4});
  const std::string rest = bytes_of(g.output("y", Element::kFloat, {4, 2}).take());
  const std::string node_begin = begin_of(field::graph::kNode, node_size);
  std::ofstream out(path, std::ios::binary);
  out << varint(field::model::kIrVersion << 3U) << varint(8);
  out << bytes_field(field::model::kOpsetImport, bytes_of(opset_import(17)));
  out << bytes_field(field::model::kOpsetImport, bytes_of(opset_import(3, "ai.onnx.ml")));
  out << begin_of(field::model::kGraph, node_begin.size() + node_size + rest.size());
  out << node_begin << node;
  for (const LongAttribute& each : attributes) {
    out << begin_of(field::node::kAttribute, each.size(count)) << each.head();
    for (std::uint64_t i = 0; i < count; ++i) out << each.entry;
    out << each.tail();
  }
  out << rest;
}

// The first test, since a process's peak never falls again.
TEST(TreeEnsemble, IsConvertedWhereItsAttributesLie) {
  const fs::path folder = fs::temp_directory_path() / ("mezzo_trees_" + std::to_string(getpid()));
  fs::create_directories(folder);
  write_trees(folder / "in.onnx", 5'750'000);
  const auto size = static_cast<std::int64_t>(fs::file_size(folder / "in.onnx"));
  const std::int64_t before = platform::peak_resident_bytes();
  Options options;
  options.verify = "none";
  const Report report = convert_model(folder / "in.onnx", folder / "out.onnx", options).report;
  const std::int64_t peak = platform::peak_resident_bytes();
  std::printf("a tree ensemble of %.0f MB, peak memory %.0f MB (%.0f MB before)\n",
              static_cast<double>(size) / 1e6, static_cast<double>(peak) / 1e6,
              static_cast<double>(before) / 1e6);
  EXPECT_GT(size, 195'000'000);
  EXPECT_LT(before, size / 4);
  EXPECT_LT(peak, size / 2 * 3);
  EXPECT_TRUE(report.unchanged);
  EXPECT_EQ(static_cast<std::int64_t>(fs::file_size(folder / "out.onnx")), size);
  fs::remove_all(folder);
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
