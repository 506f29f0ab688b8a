// Every operator of LibTorch on the device: its CPU kernel, queued. The form of results must be
// known before it runs, so each kind of call is tried out once, over numbers of the host.
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "counts.h"
#include "device.h"
#include "generator.h"
#include "guard.h"
#include "kernels.h"
#include "memory.h"

namespace mezzo::pretend {
namespace {

using Values = std::vector<c10::IValue>;
using TensorMap = std::function<at::Tensor(const at::Tensor&)>;

c10::IValue mapped(const c10::IValue& value, const TensorMap& map) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? c10::IValue(map(value.toTensor())) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(tensor.defined() ? map(tensor) : tensor);
    }
    return list;
  }
  if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
    const c10::List<c10::IValue> before = value.toList();
    c10::impl::GenericList list(before.elementType());
    for (const c10::IValue& element : before.vec()) list.push_back(mapped(element, map));
    return list;
  }
  return value;
}

void visit(const c10::IValue& value, const std::function<void(const at::Tensor&)>& look) {
  mapped(value, [&](const at::Tensor& tensor) {
    look(tensor);
    return tensor;
  });
}

// The numbers on which calls are tried out: of the host, and harmless as indices and divisors.
at::Tensor stand_in(const at::Tensor& tensor) {
  at::Tensor made = at::empty_strided(tensor.sizes(), tensor.strides(),
                                      at::TensorOptions(at::kCPU).dtype(tensor.scalar_type()));
  const at::Tensor all = at::empty({0}, made.options()).set_(made.storage());
  const bool number = at::isFloatingType(made.scalar_type()) || made.is_complex();
  all.fill_(number ? 1 : 0);
  return made;
}

struct Form {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  at::ScalarType type = at::kFloat;
  bool defined = true;
};

Form form_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {.sizes = {}, .strides = {}, .type = at::kFloat, .defined = false};
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided,
                              "pretend CUDA: the device has no sparse tensors");
  return {.sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .type = tensor.scalar_type(),
          .defined = true};
}

// One of the results: tensors in order, several where it is a list.
struct Result {
  bool is_list = false;
  std::vector<Form> forms;
};

struct Outcome {
  std::vector<Result> results;
  struct Written {
    std::vector<std::int64_t> sizes;
    std::size_t bytes = 0;  // of the memory that the kernel left behind
  };
  std::vector<Written> written;  // of arguments that are written
};

struct Call {
  const c10::OperatorHandle& op;
  Values arguments;
  int device = 0;

  const c10::FunctionSchema& schema() const { return op.schema(); }
  bool writes(std::size_t argument) const {
    const auto* alias = schema().arguments()[argument].alias_info();
    return alias != nullptr && alias->isWrite();
  }
  // The argument that a result is; none if it is a new tensor.
  std::optional<std::size_t> argument_of_result(std::size_t result) const {
    const auto* alias = schema().returns()[result].alias_info();
    if (alias == nullptr) return std::nullopt;
    TORCH_CHECK(alias->isWrite(),
                "pretend CUDA: a view without a row of its own: ", schema().name());
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto* other = schema().arguments()[i].alias_info();
      if (other != nullptr && *other == *alias) return i;
    }
    TORCH_CHECK(false, "pretend CUDA: a result of ", schema().name(), " that is no argument");
  }
  std::string name() const { return schema().name() + "." + schema().overload_name(); }
};

bool is_generator(const c10::IValue& value) {
  return value.isGenerator();
}

// GPUs have softmax of 16-bit numbers in float as one kernel; on the host they are cast before and
// after. The result is the output that was given, if one has to take the cast back.
at::Tensor cast_softmax(const std::string& name, Values& arguments) {
  const bool forward = name == "aten::_softmax" || name == "aten::_log_softmax";
  const bool backward =
      name == "aten::_softmax_backward_data" || name == "aten::_log_softmax_backward_data";
  if (forward && arguments[2].toBool()) {
    arguments[0] = arguments[0].toTensor().to(at::kFloat);
    arguments[2] = false;
  }
  if (!backward) return {};
  const at::ScalarType type = arguments[0].toTensor().scalar_type();
  if (arguments[3].toScalarType() == type) return {};
  arguments[3] = type;
  const at::Tensor given = arguments[4].toTensor();
  arguments[4] = at::empty({0}, arguments[0].toTensor().options());
  return given;
}

Values run_on_cpu(const c10::OperatorHandle& op, Values arguments) {
  for (c10::IValue& value : arguments) {
    if (is_generator(value)) value = c10::IValue();
  }
  const at::Tensor output = cast_softmax(op.schema().name(), arguments);
  // LibTorch takes several outputs from the stack's arguments after it dropped those, so that
  // somebody else must hold them.
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  if (output.defined()) {
    output.resize_(stack[0].toTensor().sizes()).copy_(stack[0].toTensor());
    stack[0] = output;
  }
  return {stack.begin(), stack.end()};
}

void find_device(Call& call) {
  std::optional<int> device;
  std::string host;
  for (const c10::IValue& value : call.arguments) {
    visit(value, [&](const at::Tensor& tensor) {
      if (is_on_device(tensor)) {
        const int here = static_cast<int>(tensor.get_device());
        TORCH_CHECK(device.value_or(here) == here,
                    "Expected all tensors to be on the same device, but found at least two devices,"
                    " cuda:",
                    device.value_or(0), " and cuda:", here, "! (", call.name(), ")");
        device = here;
      } else if (tensor.dim() > 0 && tensor.numel() > 0) {
        host = call.name();
      }
    });
  }
  // Lengths and the like are read by the host, indices are carried over.
  static const std::set<std::string> kTakesHost{"aten::index",
                                                "aten::index_put_",
                                                "aten::_index_put_impl_",
                                                "aten::index_put",
                                                "aten::_unsafe_index",
                                                "aten::_pack_padded_sequence",
                                                "aten::_ctc_loss",
                                                "aten::multinomial",
                                                "aten::_cudnn_ctc_loss",
                                                "aten::_pack_padded_sequence_backward",
                                                "aten::_unsafe_index_put",
                                                "aten::_ctc_loss_backward"};
  TORCH_CHECK(
      host.empty() || kTakesHost.contains(call.schema().name()),
      "Expected all tensors to be on the same device, but found at least two devices, cuda:",
      device.value_or(0), " and cpu! (", host, ")");
  TORCH_CHECK(device.has_value(), "pretend CUDA: ", call.name(), " without a tensor of a device");
  call.device = *device;
}

bool is_mask(const c10::IValue& indices) {
  bool found = false;
  visit(indices, [&](const at::Tensor& tensor) {
    found |= tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
  });
  return found;
}

// Results whose form depends on numbers: the host waits for them, as on a GPU.
bool depends_on_numbers(const Call& call) {
  static const std::set<std::string> kNames{"aten::nonzero",
                                            "aten::masked_select",
                                            "aten::_unique",
                                            "aten::_unique2",
                                            "aten::unique_dim",
                                            "aten::unique_consecutive",
                                            "aten::unique_dim_consecutive",
                                            "aten::repeat_interleave",
                                            "aten::bincount",
                                            "aten::equal",
                                            "aten::_embedding_bag",
                                            "aten::_pack_padded_sequence"};
  const std::string& name = call.schema().name();
  if (kNames.contains(name)) return true;
  const bool indexed =
      name == "aten::index" || name == "aten::_index_put_impl_" || name == "aten::_unsafe_index";
  if (indexed && call.arguments.size() > 1 && is_mask(call.arguments[1])) return true;
  for (const auto& result : call.schema().returns()) {
    const auto kind = result.type()->kind();
    if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) return true;
  }
  return false;
}

std::string signature(const Call& call) {
  std::ostringstream text;
  text << call.name();
  for (const c10::IValue& value : call.arguments) {
    text << '|';
    bool tensors = false;
    visit(value, [&](const at::Tensor& tensor) {
      tensors = true;
      text << tensor.scalar_type() << tensor.sizes() << tensor.strides()
           << (is_on_device(tensor) ? 'd' : 'h') << tensor.is_neg() << tensor.is_conj() << ';';
      // The host's numbers may say how large a result is.
      if (!is_on_device(tensor) && tensor.numel() <= 4096) {
        const at::Tensor host = tensor.contiguous();
        text << std::string(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
      }
    });
    if (!tensors && !is_generator(value)) text << value;
  }
  return text.str();
}

Outcome outcome_of(const Call& call, const Values& arguments, const Values& results) {
  Outcome outcome;
  for (const c10::IValue& value : results) {
    Result result;
    result.is_list = value.isTensorList();
    if (value.isTensor()) result.forms.push_back(form_of(value.toTensor()));
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector())
        result.forms.push_back(form_of(tensor));
    }
    outcome.results.push_back(std::move(result));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!call.writes(i)) continue;
    visit(arguments[i], [&](const at::Tensor& tensor) {
      outcome.written.push_back({tensor.sizes().vec(), tensor.storage().nbytes()});
    });
  }
  return outcome;
}

Outcome try_out(const Call& call, const TensorMap& numbers) {
  const InKernel here;
  Values arguments;
  for (const c10::IValue& value : call.arguments) arguments.push_back(mapped(value, numbers));
  const Values results = run_on_cpu(call.op, arguments);
  return outcome_of(call, arguments, results);
}

at::Tensor on_host(const at::Tensor& tensor) {
  return is_on_device(tensor) ? Place(tensor).tensor().clone() : tensor.clone();
}

// Only what is new, or may be resized, has to be tried.
bool knows_its_results(const Call& call) {
  for (std::size_t i = 0; i < call.schema().returns().size(); ++i) {
    const auto argument = call.argument_of_result(i);
    if (!argument || call.schema().arguments()[*argument].is_out()) return false;
  }
  return true;
}

const Outcome& known_outcome(const Call& call) {
  static auto* known = new std::map<std::string, Outcome>;
  const std::string name = signature(call);
  const std::lock_guard lock(device_mutex());
  const auto found = known->find(name);
  if (found != known->end()) return found->second;
  Outcome outcome;
  try {
    outcome = try_out(call, [](const at::Tensor& tensor) {
      return is_on_device(tensor) ? stand_in(tensor) : tensor.clone();
    });
  } catch (const std::exception&) {
    // Harmless numbers were none, or the call is wrong: then the real ones say so.
    Streams::all().run_all();
    outcome = try_out(call, on_host);
  }
  return known->emplace(name, std::move(outcome)).first->second;
}

at::Tensor new_tensor(const Form& form, int device) {
  if (!form.defined) return {};
  return at::empty_strided(form.sizes, form.strides,
                           at::TensorOptions(pretend::device(device)).dtype(form.type));
}

// An argument as a task keeps it: places of the device, numbers of the host as they are now.
class Kept {
 public:
  explicit Kept(const c10::IValue& given) : value_(given) {
    if (given.isTensor()) {
      kind_ = Kind::kTensor;
      keep(given);
      value_ = {};
    } else if (given.isTensorList()) {
      kind_ = Kind::kTensors;
      for (const at::Tensor& tensor : given.toTensorVector()) keep(tensor);
      value_ = {};
    } else if (is_list_of_optional_tensors(given)) {
      kind_ = Kind::kOptionalTensors;
      for (const c10::IValue& element : given.toList().vec()) keep(element);
      value_ = {};
    }
  }

  /// An output without elements each time.
  static Kept made_by_kernel(const at::Tensor& output) {
    Kept kept{c10::IValue()};
    kept.kind_ = Kind::kMade;
    kept.value_ = static_cast<std::int64_t>(output.scalar_type());
    return kept;
  }

  c10::IValue tensors() const {
    switch (kind_) {
      case Kind::kMade:
        return at::empty(
            {0}, at::TensorOptions(at::kCPU).dtype(static_cast<at::ScalarType>(value_.toInt())));
      case Kind::kTensor:
        return tensor(slots_.front());
      case Kind::kTensors: {
        c10::List<at::Tensor> list;
        for (const Slot& slot : slots_) list.push_back(tensor(slot).toTensor());
        return list;
      }
      case Kind::kOptionalTensors: {
        c10::List<std::optional<at::Tensor>> list;
        for (const Slot& slot : slots_) list.push_back(tensor(slot).toOptional<at::Tensor>());
        return list;
      }
      default:
        return value_;
    }
  }

 private:
  enum class Kind { kValue, kTensor, kTensors, kOptionalTensors, kMade };
  struct Slot {
    std::optional<Place> place;
    c10::IValue host;
  };

  static bool is_list_of_optional_tensors(const c10::IValue& value) {
    if (!value.isList()) return false;
    const c10::TypePtr element = value.toList().elementType();
    return element->kind() == c10::TypeKind::OptionalType &&
           element->castRaw<c10::OptionalType>()->getElementType()->kind() ==
               c10::TypeKind::TensorType;
  }
  void keep(const c10::IValue& value) {
    const bool tensor = value.isTensor() && value.toTensor().defined();
    if (tensor && is_on_device(value.toTensor())) {
      slots_.push_back({Place(value.toTensor()), {}});
    } else {
      slots_.push_back({std::nullopt, tensor ? c10::IValue(value.toTensor().clone()) : value});
    }
  }
  static c10::IValue tensor(const Slot& slot) {
    return slot.place ? c10::IValue(slot.place->tensor()) : slot.host;
  }

  Kind kind_ = Kind::kValue;
  c10::IValue value_;
  std::vector<Slot> slots_;
};

// LibTorch's CPU generator, for one kernel at another place of the sequence.
class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    before_ = generator_.get_state();
    generator_.set_current_seed(seed);
  }
  ~Drawn() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(before_);
  }
  Drawn(const Drawn&) = delete;
  Drawn& operator=(const Drawn&) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;
};

// The seeds of a call that draws: another one each time that a captured call runs.
std::function<std::optional<std::uint64_t>()> draws_of(const Call& call) {
  at::Generator generator;
  bool draws = call.op.hasTag(at::Tag::nondeterministic_seeded);
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const c10::IValue& value = call.arguments[i];
    if (is_generator(value)) generator = value.toGenerator();
    const std::string& name = call.schema().arguments()[i].name();
    draws |= name == "generator";
  }
  if (!draws) return [] { return std::nullopt; };
  if (!generator.defined()) generator = default_generator(call.device);
  const std::uint64_t seed = next_draw(generator);
  return [seed, times = std::make_shared<std::uint64_t>(0)] {
    return std::optional(seed + 0x9E3779B97F4A7C15ULL * (*times)++);
  };
}

void copy_results(const Values& results, const std::vector<std::vector<std::optional<Place>>>& to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].empty()) continue;
    const std::vector<at::Tensor> made = results[i].isTensor()
                                             ? std::vector<at::Tensor>{results[i].toTensor()}
                                             : results[i].toTensorVector();
    for (std::size_t j = 0; j < made.size(); ++j) {
      if (!to[i][j]) continue;
      at::Tensor there = to[i][j]->tensor();
      TORCH_CHECK(there.sizes() == made[j].sizes(),
                  "pretend CUDA: the form of a result depends on numbers: ", there.sizes(),
                  " was expected, ", made[j].sizes(), " came");
      there.copy_(made[j]);
    }
  }
}

c10::IValue device_result(const Result& result, int device,
                          std::vector<std::optional<Place>>& places) {
  std::vector<at::Tensor> made;
  for (const Form& form : result.forms) {
    made.push_back(new_tensor(form, device));
    places.push_back(made.back().defined() ? std::optional(Place(made.back())) : std::nullopt);
  }
  if (!result.is_list) return made.front();
  return c10::List<at::Tensor>(made);
}

// Gives outputs their sizes. Those that had others, if only on the way, are the kernel's to make.
std::set<std::size_t> resize_written(const Call& call, const Outcome& outcome) {
  std::set<std::size_t> resized;
  std::size_t next = 0;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    if (!call.writes(i)) continue;
    visit(call.arguments[i], [&](const at::Tensor& tensor) {
      const auto& [sizes, bytes] = outcome.written[next++];
      const bool grown = bytes > at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(),
                                                                  tensor.itemsize());
      if (tensor.sizes() == at::IntArrayRef(sizes) && !grown) return;
      at::Tensor(tensor).resize_(sizes);
      if (call.arguments[i].isTensor()) resized.insert(i);
    });
  }
  return resized;
}

Values queue_call(const Call& call) {
  Outcome outcome;
  std::set<std::size_t> resized;
  if (!knows_its_results(call)) {
    outcome = known_outcome(call);
    resized = resize_written(call, outcome);
  }
  Values results;
  std::vector<std::vector<std::optional<Place>>> places(call.schema().returns().size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (const auto argument = call.argument_of_result(i)) {
      results.push_back(call.arguments[*argument]);
      if (resized.contains(*argument)) places[i].emplace_back(Place(results.back().toTensor()));
    } else {
      results.push_back(device_result(outcome.results[i], call.device, places[i]));
    }
  }
  std::vector<Kept> kept;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    if (!resized.contains(i)) {
      kept.emplace_back(call.arguments[i]);
    } else {
      kept.push_back(Kept::made_by_kernel(call.arguments[i].toTensor()));
    }
  }
  Streams::all().queue(
      current_stream(call.device),
      [op = call.op, kept = std::move(kept), places = std::move(places), draw = draws_of(call)] {
        const InKernel here;
        Values arguments;
        for (const Kept& argument : kept) arguments.push_back(argument.tensors());
        std::optional<Drawn> drawn;
        if (const auto seed = draw()) drawn.emplace(*seed);
        copy_results(run_on_cpu(op, std::move(arguments)), places);
      });
  return results;
}

Values run_at_once(const Call& call) {
  Streams::all().refuse_in_capture("the host waits for the form of a result");
  count_wait(Wait::kShape, call.name());
  const StreamName stream = current_stream(call.device);
  Streams::all().run_stream(stream);
  Values results;
  {
    const InKernel here;
    Values arguments;
    for (const c10::IValue& value : call.arguments) arguments.push_back(Kept(value).tensors());
    results = run_on_cpu(call.op, std::move(arguments));
  }
  const at::Device there = device(call.device);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (const auto argument = call.argument_of_result(i)) {
      results[i] = call.arguments[*argument];
    } else {
      results[i] = mapped(results[i], [&](const at::Tensor& tensor) {
        at::Tensor made = at::empty_like(tensor, tensor.options().device(there));
        // Queued like all else: the memory may be somebody's until the stream gets there.
        queue_kernel({made}, [tensor](const std::vector<at::Tensor>& t) { t[0].copy_(tensor); });
        return made;
      });
    }
  }
  return results;
}

}  // namespace

void run_operator(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  Call call{op, Values(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end())};
  torch::jit::drop(*stack, count);
  find_device(call);
  Values results = depends_on_numbers(call) ? run_at_once(call) : queue_call(call);
  for (c10::IValue& value : results) stack->push_back(std::move(value));
}

namespace {

// LibTorch has list operators of its own for CUDA; those for CPUs are one operator a tensor.
void take_lists(torch::Library& library) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::_foreach_", 0) != 0) continue;
    const std::string full =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_operator>());
  }
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  take_lists(library);
  // LibTorch's own chooses among kernels that it looks up without the dispatcher.
  library.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

}  // namespace
}  // namespace mezzo::pretend
