#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "bridge/tensors.h"
#include "mezzo/parallel.h"
#include "parallel/aside.h"
#include "parallel/flat.h"
#include "parallel/gradient_reducer.h"
#include "parallel/group.h"
#include "parallel/join.h"
#include "parallel/same_lines.h"

namespace mezzo::parallel::detail {
namespace {

constexpr const char* kInDDP = "DistributedDataParallel";

// A tensor that two modules share is listed twice.
std::vector<ReducedParameter> distinct(NamedTensors all) {
  std::vector<ReducedParameter> result;
  std::unordered_set<const void*> seen;
  for (std::size_t i = 0; i < all.tensors.size(); ++i) {
    at::Tensor& tensor = all.tensors[i];
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) {
      result.push_back({std::move(all.names[i]), std::move(tensor)});
    }
  }
  return result;
}

void validate(const DDPOptions& o, const std::vector<ReducedParameter>& parameters) {
  if (o.message_size < 1) {
    raise<ConfigError>(kInDDP, "message_size is ", o.message_size, ", expected at least 1");
  }
  if (!std::isfinite(o.gradient_predivide_factor) || o.gradient_predivide_factor <= 0) {
    raise<ConfigError>(kInDDP, "gradient_predivide_factor is ", o.gradient_predivide_factor,
                       ", expected a positive number");
  }
  if (o.num_allreduce_streams < 1) {
    raise<ConfigError>(kInDDP, "num_allreduce_streams is ", o.num_allreduce_streams,
                       ", expected at least 1");
  }
  if (o.delay_allreduce && !o.allreduce_trigger_params.empty()) {
    raise<ConfigError>(kInDDP, "allreduce_trigger_params have no meaning with delay_allreduce");
  }
  if (o.delay_allreduce && o.num_allreduce_streams > 1) {
    raise<ConfigError>(kInDDP, "num_allreduce_streams above 1 has no meaning with delay_allreduce");
  }
  if (!o.allreduce_communicators.empty() &&
      (o.num_allreduce_streams < 2 ||
       static_cast<int>(o.allreduce_communicators.size()) != o.num_allreduce_streams)) {
    raise<ConfigError>(kInDDP, o.allreduce_communicators.size(), " allreduce_communicators and ",
                       o.num_allreduce_streams,
                       " num_allreduce_streams: expected equal numbers above 1");
  }
  if (parameters.empty()) raise<ConfigError>(kInDDP, "the module has no parameters");
  for (const ReducedParameter& parameter : parameters) {
    if (parameter.tensor.requires_grad() && !bridge::kernel_dtype(parameter.tensor.scalar_type())) {
      raise<UnsupportedError>(kInDDP, "parameter '", parameter.name, "' is of type ",
                              c10::toString(parameter.tensor.scalar_type()),
                              "; only Float, Double, Half and BFloat16 are reduced");
    }
  }
}

std::vector<std::uint8_t> triggers_of(const DDPOptions& options,
                                      const std::vector<ReducedParameter>& parameters) {
  std::vector<std::uint8_t> triggers(parameters.size(), 0);
  for (std::size_t t = 0; t < options.allreduce_trigger_params.size(); ++t) {
    const at::Tensor& trigger = options.allreduce_trigger_params[t];
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& p) { return p.tensor.is_same(trigger); });
    if (found == parameters.end()) {
      raise<ConfigError>(kInDDP, "allreduce_trigger_params[", t, "] is no parameter of the module");
    }
    triggers[static_cast<std::size_t>(found - parameters.begin())] = 1;
  }
  return triggers;
}

// Everything that must be the same on all ranks.
std::vector<std::string> layout_lines(const DDPOptions& o,
                                      const std::vector<ReducedParameter>& parameters,
                                      const std::vector<ReducedParameter>& buffers,
                                      const std::vector<ReducedParameter>& masters,
                                      std::int64_t losses,
                                      const std::vector<std::uint8_t>& triggers) {
  std::ostringstream text;
  text << "message_size = " << o.message_size << "\ndelay_allreduce = " << o.delay_allreduce
       << "\nallreduce_always_fp32 = " << o.allreduce_always_fp32
       << "\ngradient_average = " << o.gradient_average
       << "\ngradient_predivide_factor = " << o.gradient_predivide_factor
       << "\nnum_allreduce_streams = " << o.num_allreduce_streams
       << "\nfind_unused_parameters = " << o.find_unused_parameters
       << "\nbroadcast_buffers = " << o.broadcast_buffers << "\nloss scales: " << losses << '\n';
  const auto add = [&](const char* kind, const ReducedParameter& p) {
    text << kind << p.name << ' ' << c10::toString(p.tensor.scalar_type()) << ' '
         << p.tensor.sizes() << ' ' << (p.tensor.requires_grad() ? "" : "frozen ");
    // Gradients lie in buckets as parameters do in memory.
    if (!p.tensor.is_contiguous()) text << "strides " << p.tensor.strides() << ' ';
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    add("parameter ", parameters[i]);
    text << (triggers[i] != 0 ? "trigger\n" : "\n");
  }
  for (const ReducedParameter& buffer : buffers) {
    add("buffer ", buffer);
    text << '\n';
  }
  for (const ReducedParameter& master : masters) {
    add("master ", master);
    text << '\n';
  }
  std::vector<std::string> lines;
  std::istringstream in(text.str());
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Values for all from one rank. Buffers may be written past their version counters: autograd's own
// batch norms do not use them in the backward, and two forwards before one backward are allowed.
// One that requires a gradient is a weight to those who keep low-precision copies of it.
void spread(Lane& lane, const std::vector<ReducedParameter>& given, int root, bool count_version) {
  std::vector<at::Tensor> tensors;
  for (const ReducedParameter& one : given) {
    const bool counts = count_version || one.tensor.requires_grad();
    tensors.push_back(counts ? one.tensor.detach() : one.tensor.data());
  }
  for (const auto& chosen : by_type(tensors)) {
    const at::Tensor flat = flatten_chosen(tensors, chosen);
    lane.broadcast(flat, root)->wait();
    if (lane.rank() != root) unflatten_chosen(flat, tensors, chosen);
  }
}

AverageScale scale_of(const DDPOptions& options, int ranks) {
  const double f = options.gradient_predivide_factor;
  return {1.0 / f, options.gradient_average ? f / ranks : 1.0};
}

}  // namespace

struct DataParallel::State {
  DDPOptions options;
  std::optional<ProcessGroup> group;
  std::vector<ReducedParameter> parameters;
  std::vector<ReducedParameter> buffers;
  LevelState level;
  std::vector<std::shared_ptr<Lane>> lanes;
  std::shared_ptr<Lane> layout_lane;  // what ranks compare between steps
  std::shared_ptr<Join> join;         // of the group; null before the first join()
  int number = 0;  // of this object within its group: which one a joined rank shadows
  int pauses = 0;
  bool enabled = true;
  bool divide_by_active = false;
  std::optional<int> equal_again;  // by this rank's state: an error ended join() before that
  std::unique_ptr<GradientReducer> reducer;  // last: its end may need the rest

  std::vector<ReducedParameter> listed_masters() const {
    return level.masters ? distinct(level.masters()) : std::vector<ReducedParameter>{};
  }
  at::Tensor loss_scales() const {
    return level.loss_scales ? level.loss_scales() : at::empty({0}, at::kDouble);
  }

  // Weights, masters, buffers and loss scales of one rank for all. The masters go as they are:
  // rounded into weights and back, those of the others would differ from the root's. Gradients that
  // carried different scales could not be averaged.
  void spread_state(int root) {
    const std::vector<ReducedParameter> of_weights = listed_masters();
    spread(*lanes.front(), parameters, root, true);
    spread(*lanes.front(), of_weights, root, true);
    if (!of_weights.empty()) level.publish_masters();
    spread(*lanes.front(), buffers, root, true);
    if (!level.loss_scales) return;
    const at::Tensor scales = level.loss_scales();
    lanes.front()->broadcast(scales, root)->wait();
    if (lanes.front()->rank() != root) level.set_loss_scales(scales);
  }

  // After an error that ended a join(). All ranks had it, in the exchange that found it, so that
  // all come by here the next time that this model trains.
  void make_equal() {
    if (!equal_again || (join != nullptr && join->has(number))) return;
    reducer->close_broken_backward();
    const int root = *equal_again;
    equal_again.reset();
    spread_state(root);
  }

  // Before it is done: ranks that send by different ways would take one thing for another.
  void agree_on_way(const std::string& way) const {
    check_same_lines(*layout_lane, {"gradients travel by " + way}, kInDDP);
  }

  bool syncs() const { return enabled && pauses == 0; }
  void update_sync() { reducer->set_sync(syncs()); }

  bool in_loop() const { return join != nullptr && join->has(number) && join->in_loop(); }
  int ranks_with_data() const { return divide_by_active ? join->active() : group->size(); }

  Notice notice(Coming what) const {
    Notice own;
    own.what = what;
    own.model = number;
    return own;
  }

  GradientReducer::Terms begin_backward() {
    if (!in_loop()) return {scale_of(options, group->size()), group->size()};
    join->exchange(notice(Coming::kBackward));
    return {scale_of(options, ranks_with_data()), join->active()};
  }

  void announce_bucket(int bucket) {
    if (!in_loop()) return;
    Notice own = notice(Coming::kBucket);
    own.elements = bucket;
    join->exchange(own);
  }

  void end_backward() {
    if (in_loop()) join->exchange(notice(Coming::kBackwardEnd));
  }

  // The buffers of a rank that has left the loop do not move any more.
  void spread_buffers() {
    const bool in_join = join != nullptr && join->has(number);
    spread(*lanes.front(), buffers, in_join ? join->first_active_rank() : 0, false);
  }

  void shadow(const Notice& coming) {
    if (coming.what == Coming::kBuffers) spread_buffers();
    if (coming.what == Coming::kBackward)
      reducer->begin_shadow(scale_of(options, ranks_with_data()));
    if (coming.what == Coming::kBucket) reducer->shadow_bucket(static_cast<int>(coming.elements));
    if (coming.what == Coming::kBackwardEnd) reducer->end_shadow();
  }
};

DataParallel::DataParallel(NamedTensors parameters, NamedTensors buffers, LevelState level,
                           DDPOptions options)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.options = std::move(options);
  s.group = group_or_world(s.options.process_group, kInDDP);
  s.parameters = distinct(std::move(parameters));
  s.buffers = distinct(std::move(buffers));
  s.level = std::move(level);
  validate(s.options, s.parameters);
  const std::vector<std::uint8_t> triggers = triggers_of(s.options, s.parameters);
  Group& group = s.group->internals();
  check_same_lines(group.calls(),
                   layout_lines(s.options, s.parameters, s.buffers, s.listed_masters(),
                                s.loss_scales().size(0), triggers),
                   kInDDP);
  if (s.options.allreduce_communicators.empty()) {
    for (int i = 0; i < s.options.num_allreduce_streams; ++i) {
      s.lanes.push_back(group.open_lane("gradients"));
    }
  } else {
    for (const ProcessGroup& one : s.options.allreduce_communicators) {
      if (one.ranks() != s.group->ranks()) {
        raise<ConfigError>(kInDDP, "an allreduce_communicator has other ranks than the module's");
      }
      s.lanes.push_back(one.internals().open_lane("gradients"));
    }
  }
  s.layout_lane = group.open_lane("layout");
  s.number = group.next_number();
  s.spread_state(0);
  GradientReducer::Settings settings;
  settings.message_size = s.options.message_size;
  settings.delayed = s.options.delay_allreduce;
  settings.always_float = s.options.allreduce_always_fp32;
  settings.unused_allowed = s.options.find_unused_parameters;
  settings.scale = scale_of(s.options, s.group->size());
  settings.triggers = triggers;
  s.reducer =
      std::make_unique<GradientReducer>(s.parameters, settings, *s.group, s.lanes, s.layout_lane);
  s.reducer->set_on_backward([&s] { return s.begin_backward(); }, [&s] { s.end_backward(); });
  s.reducer->set_before_layout([&s] {
    if (s.in_loop()) s.join->exchange(s.notice(Coming::kLayout));
  });
  s.reducer->sender().set_before_hook([&s](int bucket) { s.announce_bucket(bucket); });
}

DataParallel::~DataParallel() = default;

void DataParallel::before_forward(bool training) {
  if (Aside::active()) return;
  State& s = *state_;
  if (!s.reducer->prepare()) return;
  if (!s.syncs() || !training) return;
  s.make_equal();
  if (!s.options.broadcast_buffers || s.buffers.empty() || s.group->size() == 1) return;
  if (s.in_loop()) s.join->exchange(s.notice(Coming::kBuffers));
  s.spread_buffers();
}

void DataParallel::pause() {
  ++state_->pauses;
  state_->update_sync();
}

void DataParallel::resume() {
  --state_->pauses;
  state_->update_sync();
}

void DataParallel::set_enabled(bool enabled) {
  state_->enabled = enabled;
  state_->update_sync();
}

void DataParallel::open_join(bool divide_by_active) {
  State& s = *state_;
  s.join = s.group->internals().join();
  if (s.join->has(s.number)) {
    raise("join", "this DistributedDataParallel is in a join() already");
  }
  s.make_equal();
  s.divide_by_active = divide_by_active;
  s.join->enter(s.number, {s.parameters.front().tensor.device(),
                           [&s](const Notice& coming) { s.shadow(coming); },
                           [&s] { s.reducer->close_broken_backward(); }});
}

void DataParallel::close_join() {
  State& s = *state_;
  if (s.join == nullptr || !s.join->has(s.number)) return;
  try {
    s.join->leave(s.number, *s.group->internals().session());
  } catch (...) {
    s.equal_again = s.join->first_active_rank();
    throw;
  }
  s.spread_state(s.join->first_active_rank());
}

void DataParallel::set_hook(CommHook hook) {
  if (!hook) raise<ConfigError>(kInDDP, "the communication hook is empty");
  state_->agree_on_way("a communication hook");
  state_->reducer->sender().set_hook(std::move(hook));
}

void DataParallel::compress(at::ScalarType type) {
  state_->agree_on_way(c10::toString(type));
  state_->reducer->sender().set_compression(type);
}

void DataParallel::finish_backward() {
  if (state_->syncs()) state_->make_equal();
  state_->reducer->finish_without_gradients();
}

void DataParallel::zero_grad(bool set_to_none) {
  state_->reducer->zero_gradients(set_to_none);
}

std::vector<at::Tensor> DataParallel::buffers() const {
  if (!state_->options.retain_allreduce_buffers) {
    raise<ConfigError>(kInDDP, "allreduce_buffers() needs retain_allreduce_buffers = true");
  }
  return state_->reducer->buffers();
}

DDPStatistics DataParallel::statistics() const {
  return state_->reducer->statistics();
}

}  // namespace mezzo::parallel::detail

namespace mezzo::parallel {
namespace {

CommHook compressing(at::ScalarType type) {
  return [type](const GradientBucket& bucket, const ProcessGroup& group) -> std::function<void()> {
    std::shared_ptr<Pending> average = start_compressed_average(
        group.internals().calls(), bucket.gradients, average_scale(group.size()), type);
    return [average] { average->wait(); };
  };
}

}  // namespace

CommHook compress_fp16() {
  return compressing(at::kHalf);
}

CommHook compress_bf16() {
  return compressing(at::kBFloat16);
}

}  // namespace mezzo::parallel
