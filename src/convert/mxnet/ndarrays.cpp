// Named arrays, and the files that hold them.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>

#include "convert/engine/samples.h"
#include "convert/onnx/low.h"
#include "core/raise.h"
#include "mezzo/convert_mxnet.h"
#include "platform/files.h"

namespace mezzo::convert::mxnet {
namespace {

constexpr const char* kInParams = "mxnet";
constexpr std::uint64_t kFileMagic = 0x112;
// Shapes of 32 bits; shapes of 64 bits and a storage type; the same, of numpy's semantics.
constexpr std::uint32_t kFirst = 0xF993FAC8, kSecond = 0xF993FAC9, kThird = 0xF993FACA;
constexpr std::uint64_t kMostDense = std::uint64_t{1} << 31;
constexpr std::size_t kMostDims = 32;

struct DtypeRow {
  std::string_view name;
  Element element;
  std::size_t size;
};

// In the order of MXNet's codes.
constexpr std::array<DtypeRow, 13> kDtypes{{{"float32", Element::kFloat, 4},
                                            {"float64", Element::kDouble, 8},
                                            {"float16", Element::kFloat16, 2},
                                            {"uint8", Element::kUint8, 1},
                                            {"int32", Element::kInt32, 4},
                                            {"int8", Element::kInt8, 1},
                                            {"int64", Element::kInt64, 8},
                                            {"bool", Element::kBool, 1},
                                            {"int16", Element::kInt16, 2},
                                            {"uint16", Element::kUint16, 2},
                                            {"uint32", Element::kUint32, 4},
                                            {"uint64", Element::kUint64, 8},
                                            {"bfloat16", Element::kBFloat16, 2}}};

const DtypeRow& row_of(std::string_view dtype, std::string_view array) {
  const auto* row = std::ranges::find(kDtypes, dtype, &DtypeRow::name);
  if (row == kDtypes.end()) {
    raise<ConfigError>(kInParams, "'", array, "' has the dtype '", dtype,
                       "'; expected float32, float16, bfloat16, float64, int32 or another of "
                       "MXNet's");
  }
  return *row;
}

/// Bytes that an array of this shape has; nothing if that is no size.
std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& shape, std::size_t size) {
  std::uint64_t count = size;
  bool is_empty = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) is_empty = true;
    const auto extent = static_cast<std::uint64_t>(std::max<std::int64_t>(dim, 1));
    if (extent > (std::uint64_t{1} << 46) / count) return std::nullopt;
    count *= extent;
  }
  return is_empty ? 0 : count;
}

struct ReadArray {
  const DtypeRow* dtype = kDtypes.data();
  std::vector<std::int64_t> shape;
  std::string bytes;
};

class ParamsReader {
 public:
  ParamsReader(std::string_view bytes, const std::string& origin)
      : all_(bytes), rest_(bytes), origin_(origin) {}

  NDArrays read() {
    if (number<std::uint64_t>() != kFileMagic) fail("it does not begin like one");
    number<std::uint64_t>();
    const std::vector<ReadArray> arrays = read_arrays();
    const auto names = number<std::uint64_t>();
    if (names != 0 && names != arrays.size()) fail("it has not as many names as arrays");
    NDArrays result;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const std::string name =
          names == 0 ? std::to_string(i) : std::string(take(number<std::uint64_t>()));
      if (result.contains(name)) fail("it has two arrays '" + name + "'");
      result.set(name, std::string(arrays[i].dtype->name), arrays[i].shape, arrays[i].bytes);
    }
    if (!rest_.empty()) fail("there are bytes after its end");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    raise(kInParams, "'", origin_, "' is no parameter file of MXNet, or damaged (near byte ",
          all_.size() - rest_.size(), "): ", what);
  }

  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) fail("it ends too early");
    const std::string_view part = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return part;
  }

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::vector<ReadArray> read_arrays() {
    const auto count = number<std::uint64_t>();
    if (count > rest_.size() / 4) fail("it says to have more arrays than fit");
    std::vector<ReadArray> arrays;
    for (std::uint64_t i = 0; i < count; ++i) arrays.push_back(read_array());
    return arrays;
  }

  template <typename Dim>
  std::vector<std::int64_t> shape(std::int64_t dims) {
    if (dims < 0 || dims > static_cast<std::int64_t>(kMostDims)) fail("an array has no shape");
    std::vector<std::int64_t> shape;
    for (std::int64_t i = 0; i < dims; ++i) {
      const auto dim = static_cast<std::int64_t>(number<Dim>());
      if (dim < 0) fail("an array has a shape that cannot be");
      shape.push_back(dim);
    }
    return shape;
  }

  const DtypeRow& read_dtype() {
    const auto code = number<std::int32_t>();
    if (code < 0 || code >= static_cast<std::int32_t>(kDtypes.size()))
      fail("it has the dtype " + std::to_string(code) + ", which nobody knows");
    return kDtypes[static_cast<std::size_t>(code)];
  }

  std::string_view payload(const std::vector<std::int64_t>& shape, const DtypeRow& dtype) {
    const auto size = bytes_of(shape, dtype.size);
    if (!size) fail("an array is too large");
    return take(*size);
  }

  ReadArray read_array() {
    const auto magic = number<std::uint32_t>();
    ReadArray array;
    if (magic == kSecond || magic == kThird) {
      const auto storage = number<std::int32_t>();
      if (storage == 1 || storage == 2) return read_sparse(storage);
      if (storage != 0) fail("an array has the storage type " + std::to_string(storage));
      const auto dims = number<std::int32_t>();
      if (magic == kSecond ? dims == 0 : dims < 0) return array;  // without values
      array.shape = shape<std::int64_t>(dims);
    } else if (magic == kFirst) {
      const auto dims = number<std::int32_t>();
      if (dims == 0) return array;
      array.shape = shape<std::int64_t>(dims);
    } else {  // of the oldest files: the number of dimensions
      if (magic == 0) return array;
      array.shape = shape<std::uint32_t>(magic);
    }
    take(8);  // the device
    array.dtype = &read_dtype();
    array.bytes = payload(array.shape, *array.dtype);
    return array;
  }

  std::vector<std::int64_t> indices(const DtypeRow& dtype, std::string_view bytes) {
    std::vector<std::int64_t> values;
    for (std::size_t at = 0; at < bytes.size(); at += dtype.size) {
      std::int64_t value = 0;
      if (dtype.name == "int32") {
        std::int32_t narrow = 0;
        std::memcpy(&narrow, bytes.data() + at, sizeof narrow);
        value = narrow;
      } else if (dtype.name == "int64") {
        std::memcpy(&value, bytes.data() + at, sizeof value);
      } else {
        fail("a sparse array has indices that are no integers");
      }
      values.push_back(value);
    }
    return values;
  }

  // 1: rows, and their indices. 2: values, where each row begins, and their columns.
  ReadArray read_sparse(std::int32_t storage) {
    const std::vector<std::int64_t> stored = shape<std::int64_t>(number<std::int32_t>());
    ReadArray array;
    array.shape = shape<std::int64_t>(number<std::int32_t>());
    if (array.shape.empty()) fail("a sparse array has no shape");
    take(8);
    array.dtype = &read_dtype();
    struct Part {
      const DtypeRow* dtype;
      std::vector<std::int64_t> shape;
    };
    std::vector<Part> parts;
    for (std::int32_t i = 0; i < storage; ++i) {
      const DtypeRow& dtype = read_dtype();
      parts.push_back({&dtype, shape<std::int64_t>(number<std::int32_t>())});
    }
    const std::string_view values = payload(stored, *array.dtype);
    std::vector<std::vector<std::int64_t>> places;
    places.reserve(parts.size());
    for (const Part& part : parts)
      places.push_back(indices(*part.dtype, payload(part.shape, *part.dtype)));
    const auto dense = bytes_of(array.shape, array.dtype->size);
    if (!dense || *dense > kMostDense) {
      raise<UnsupportedError>(kInParams, "'", origin_,
                              "' has a sparse array that would take more than 2 GB");
    }
    array.bytes.assign(*dense, '\0');
    if (storage == 1) {
      fill_rows(array, values, places[0]);
    } else {
      fill_cells(array, values, places[0], places[1]);
    }
    return array;
  }

  void fill_rows(ReadArray& array, std::string_view values, const std::vector<std::int64_t>& rows) {
    if (rows.empty()) return;
    const std::size_t size =
        array.shape[0] == 0 ? 0 : array.bytes.size() / static_cast<std::size_t>(array.shape[0]);
    if (values.size() != size * rows.size()) fail("a sparse array does not fit its indices");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] < 0 || rows[i] >= array.shape[0])
        fail("a sparse array has an index out of range");
      std::memcpy(array.bytes.data() + static_cast<std::size_t>(rows[i]) * size,
                  values.data() + i * size, size);
    }
  }

  void fill_cells(ReadArray& array, std::string_view values,
                  const std::vector<std::int64_t>& begins,
                  const std::vector<std::int64_t>& columns) {
    const std::size_t size = array.dtype->size;
    if (array.shape.size() != 2 || values.size() != columns.size() * size)
      fail("a sparse array does not fit its indices");
    if (columns.empty()) return;
    const std::int64_t rows = array.shape[0];
    const std::int64_t width = array.shape[1];
    if (begins.size() != static_cast<std::size_t>(rows) + 1)
      fail("a sparse array does not fit its indices");
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t from = begins[static_cast<std::size_t>(row)];
      const std::int64_t to = begins[static_cast<std::size_t>(row) + 1];
      if (from < 0 || to < from || to > static_cast<std::int64_t>(columns.size()))
        fail("a sparse array does not fit its indices");
      for (auto i = static_cast<std::size_t>(from); i < static_cast<std::size_t>(to); ++i) {
        if (columns[i] < 0 || columns[i] >= width) fail("a sparse array has an index out of range");
        std::memcpy(array.bytes.data() + static_cast<std::size_t>(row * width + columns[i]) * size,
                    values.data() + i * size, size);
      }
    }
  }

  std::string_view all_, rest_;
  const std::string& origin_;
};

NDArrays of_numpy(const Sample& arrays) {
  NDArrays result;
  for (const auto& [name, array] : arrays) {
    const auto* row = std::ranges::find(kDtypes, array.element, &DtypeRow::element);
    if (row != kDtypes.end()) result.set(name, std::string(row->name), array.dims, array.bytes);
  }
  return result;
}

template <typename T>
void put(std::ostream& out, T value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof value);
}

bool is_castable(Element element) {
  return element == Element::kFloat || element == Element::kFloat16 ||
         element == Element::kBFloat16;
}

}  // namespace

NDArrays NDArrays::from_bytes(std::string_view bytes, const std::string& origin) {
  try {
    if (bytes.starts_with("PK")) return of_numpy(read_npz(bytes, origin));
    if (bytes.starts_with("\x93NUMPY")) return of_numpy({{"0", read_npy(bytes, origin)}});
    return ParamsReader(bytes, origin).read();
  } catch (const ConfigError& error) {
    raise(kInParams, "'", origin, "' cannot be read: ", error.what());
  }
}

NDArrays NDArrays::load(const std::filesystem::path& file) {
  const platform::MappedFile mapped(file);
  return from_bytes(mapped.bytes(), file.string());
}

void NDArrays::save(const std::filesystem::path& file, bool numpy_shapes) const {
  platform::write_atomically(platform::behind_links(file), [&](std::ostream& out) {
    put<std::uint64_t>(out, kFileMagic);
    put<std::uint64_t>(out, 0);
    put<std::uint64_t>(out, arrays_.size());
    for (const Stored& array : arrays_) {
      // Only numpy's semantics know arrays of no dimension, and such with no elements.
      put<std::uint32_t>(out, numpy_shapes || array.shape.empty() ? kThird : kSecond);
      put<std::int32_t>(out, 0);
      put<std::int32_t>(out, static_cast<std::int32_t>(array.shape.size()));
      for (const std::int64_t dim : array.shape) put<std::int64_t>(out, dim);
      put<std::int32_t>(out, 1);
      put<std::int32_t>(out, 0);
      const auto* row = std::ranges::find(kDtypes, array.dtype, &DtypeRow::name);
      put<std::int32_t>(out, static_cast<std::int32_t>(row - kDtypes.begin()));
      out.write(array.bytes->data(), static_cast<std::streamsize>(array.bytes->size()));
    }
    put<std::uint64_t>(out, arrays_.size());
    for (const Stored& array : arrays_) {
      put<std::uint64_t>(out, array.name.size());
      out << array.name;
    }
  });
}

const NDArrays::Stored& NDArrays::stored(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) raise<ConfigError>(kInParams, "there is no array '", name, "'");
  return arrays_[found->second];
}

std::vector<std::string> NDArrays::names() const {
  std::vector<std::string> names;
  for (const Stored& array : arrays_) names.push_back(array.name);
  return names;
}

bool NDArrays::contains(std::string_view name) const {
  return places_.contains(name);
}

const std::string& NDArrays::dtype(std::string_view name) const {
  return stored(name).dtype;
}

const std::vector<std::int64_t>& NDArrays::shape(std::string_view name) const {
  return stored(name).shape;
}

std::string_view NDArrays::bytes(std::string_view name) const {
  return *stored(name).bytes;
}

void NDArrays::set(const std::string& name, const std::string& dtype,
                   std::vector<std::int64_t> shape, std::string bytes) {
  const auto needed = bytes_of(shape, row_of(dtype, name).size);
  const bool is_missing = shape.empty() && bytes.empty();
  if (!is_missing && (!needed || *needed != bytes.size())) {
    raise<ConfigError>(kInParams, "'", name, "' has ", bytes.size(),
                       " bytes, which do not fit its shape and dtype");
  }
  if (is_missing) shape = {0};
  Stored array{name, dtype, std::move(shape),
               std::make_shared<const std::string>(std::move(bytes))};
  const auto [place, is_new] = places_.try_emplace(name, arrays_.size());
  if (is_new) {
    arrays_.push_back(std::move(array));
  } else {
    arrays_[place->second] = std::move(array);
  }
}

void NDArrays::cast(std::string_view name, const std::string& dtype) {
  const Stored& from = stored(name);
  const Element wanted = row_of(dtype, name).element;
  const Element element = row_of(from.dtype, name).element;
  if (!is_castable(wanted))
    raise<ConfigError>(kInParams, "cast to '", dtype, "'; expected float32, float16 or bfloat16");
  if (element == wanted || !is_castable(element)) return;
  Array array{element, from.shape, *from.bytes};
  if (element != Element::kFloat && wanted != Element::kFloat)
    array = converted(array, Element::kFloat);
  set(from.name, dtype, from.shape, converted(array, wanted).bytes);
}

}  // namespace mezzo::convert::mxnet
