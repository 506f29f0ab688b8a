// The field numbers of ONNX's messages (onnx.proto), the names that the format gives them.
#pragma once

#include <cstdint>

namespace mezzo::convert::field {

namespace model {
constexpr std::uint32_t kIrVersion = 1, kGraph = 7, kOpsetImport = 8, kMetadata = 14,
                        kTrainingInfo = 20, kFunctions = 25;
}
namespace training {
constexpr std::uint32_t kInitialization = 1, kAlgorithm = 2;
}
namespace opset {
constexpr std::uint32_t kDomain = 1, kVersion = 2;
}
namespace graph {
constexpr std::uint32_t kNode = 1, kName = 2, kInitializer = 5, kInput = 11, kOutput = 12,
                        kValueInfo = 13, kQuantization = 14, kSparseInitializer = 15;
}
namespace node {
constexpr std::uint32_t kInput = 1, kOutput = 2, kName = 3, kOpType = 4, kAttribute = 5,
                        kDomain = 7, kOverload = 8;
}
namespace attribute {
constexpr std::uint32_t kName = 1, kFloat = 2, kInt = 3, kString = 4, kTensor = 5, kGraph = 6,
                        kFloats = 7, kInts = 8, kStrings = 9, kTensors = 10, kGraphs = 11,
                        kTypeProto = 14, kTypeProtos = 15, kType = 20, kReference = 21,
                        kSparseTensor = 22, kSparseTensors = 23;
}
/// AttributeProto.AttributeType.
namespace attribute_type {
constexpr std::uint64_t kFloat = 1, kInt = 2, kString = 3, kTensor = 4, kGraph = 5, kFloats = 6,
                        kInts = 7, kStrings = 8;
}
namespace tensor {
constexpr std::uint32_t kDims = 1, kType = 2, kSegment = 3, kFloatData = 4, kInt32Data = 5,
                        kStringData = 6, kInt64Data = 7, kName = 8, kRawData = 9, kDoubleData = 10,
                        kUint64Data = 11, kExternalData = 13, kLocation = 14;
}
namespace sparse_tensor {
constexpr std::uint32_t kValues = 1, kIndices = 2;
}
namespace pair {
constexpr std::uint32_t kKey = 1, kValue = 2;
}
namespace value_info {
constexpr std::uint32_t kName = 1, kType = 2;
}
namespace type {
constexpr std::uint32_t kTensor = 1, kSequence = 4, kMap = 5, kOpaque = 7, kSparseTensor = 8,
                        kOptional = 9;
}
namespace tensor_type {
constexpr std::uint32_t kElement = 1, kShape = 2;
}
/// Sequence and optional types: the one field is the type of their elements.
namespace container_type {
constexpr std::uint32_t kElement = 1;
}
namespace map_type {
constexpr std::uint32_t kKey = 1, kValue = 2;
}
namespace shape {
constexpr std::uint32_t kDimension = 1, kDimensionValue = 1, kDimensionName = 2;
}
namespace function {
constexpr std::uint32_t kName = 1, kInput = 4, kOutput = 5, kAttribute = 6, kNode = 7,
                        kOpsetImport = 9, kDomain = 10, kAttributeProto = 11, kValueInfo = 12,
                        kOverload = 13;
}

}  // namespace mezzo::convert::field
